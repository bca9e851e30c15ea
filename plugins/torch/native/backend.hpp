// The c10d backend "sprat": PyTorch's process groups on a Sprat communicator.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "plugins/torch/native/calls.hpp"
#include "plugins/torch/native/devices/lanes.hpp"
#include "plugins/torch/native/devices/start.hpp"
#include "plugins/torch/native/observing/observer.hpp"
#include "plugins/torch/native/observing/profiling.hpp"
#include "plugins/torch/native/torch_version.hpp"
#include "plugins/torch/native/work.hpp"
#include "sprat/communicator.hpp"

namespace sprat::pytorch {

class Backend;

/// Groups of a process that live, so that all can be left before it ends: by whoever they were
/// made, split() included. It keeps none alive. Any thread.
class Groups final {
 public:
  /// Whether their operations are recorded.
  explicit Groups(bool records = true) : Groups(std::make_shared<FlightTrace>(records)) {}
  /// The record is shared with groups that are left at another time.
  explicit Groups(std::shared_ptr<FlightTrace> trace) : trace_(std::move(trace)) {}
  void add(const c10::intrusive_ptr<Backend>& group);
  void remove(const Backend& group);
  /// Shuts all of them down, the newest first.
  void leave();
  std::size_t size();
  /// What all of them did last, as c10d's flight record.
  const std::shared_ptr<FlightTrace>& trace() const { return trace_; }

 private:
  std::mutex mutex_;
  std::vector<c10::weak_intrusive_ptr<Backend>> groups_;  ///< In the order of their making.
  const std::shared_ptr<FlightTrace> trace_;
};

/// How a group is joined; `group` is equal on its members.
struct Membership {
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0, size = 1;
  std::chrono::milliseconds timeout{};
  std::string group;
  std::vector<std::uint64_t> ranks = {};     ///< The job's; none: 0, 1, ... of the job itself.
  std::shared_ptr<Groups> groups = nullptr;  ///< Shared with the process's others, or null.
  bool reconfigurable = false;               ///< It has no ranks until reconfigure().
};

/// Any thread may call; calls of one group serialise, and every rank makes the same ones in the
/// same order. Operations that the caller waits for at once (asyncOp false) are done when the call
/// returns, which then returns null. An operation that fails ends all groups of the job.
class Backend final : public c10d::Backend {
 public:
  /// A job of its own, whose ranks meet in the store.
  static c10::intrusive_ptr<Backend> join(Membership membership);
  /// A group of this one's ranks, in their order. Only its members call.
  c10::intrusive_ptr<Backend> create_group(const std::vector<int>& ranks, Membership membership);
  Backend(std::optional<sprat::Communicator> ranks, Membership membership);
  ~Backend() override;

  const std::string getBackendName() const override { return "sprat"; }
  bool supportsSplitting() const override { return true; }
  bool supportsShrinking() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options = {}) override;
  c10::intrusive_ptr<Options> getBackendOptions() override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  /// Calls from here on get as much more, until the first of them has ended.
  void addEphemeralTimeout(const std::chrono::milliseconds& extra) SPRAT_SINCE_TORCH_2_14;
  /// Works of calls from here on have a getDuration().
  void enableCollectivesTiming() override;
  /// Called with each operation that has ended, from a thread of its own, in order.
  void registerOnCompletionHook(
      std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override;
  void waitForPendingWorks() override;
  /// Called before abort(), and when an operation fails but by the caller's mistake; once.
  void registerAbortHook(std::int64_t number, HookTable<>::Function hook) SPRAT_SINCE_TORCH_2_14;
  void unregisterAbortHook(std::int64_t number) SPRAT_SINCE_TORCH_2_14;
#if SPRAT_TORCH_HAS_COMPLETION_HOOKS
  bool supportsAbortHooks() const override { return true; }
  bool supportsCompletionHooks() const override { return true; }
  void registerCompletionHook(std::int64_t number, c10d::CompletionHook hook) override;
  void unregisterCompletionHook(std::int64_t number) override;
#endif
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }
  c10d::ErrorType getError() override;

  c10::intrusive_ptr<c10d::Work> broadcast(Tensors& tensors,
                                           const c10d::BroadcastOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> allreduce(Tensors& tensors,
                                           const c10d::AllreduceOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> allreduce_sparse(Tensors& tensors,
                                                  const c10d::AllreduceOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> allreduce_coalesced(
      Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                           const c10d::AllgatherOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                     const c10d::AllgatherOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                        const c10d::GatherOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                         const c10d::ScatterOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                const c10d::ReduceScatterOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<std::int64_t>& output_splits,
                                               std::vector<std::int64_t>& input_splits,
                                               const c10d::AllToAllOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> alltoall(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllToAllOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> send(Tensors& tensors, int to, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(Tensors& tensors, int from, int tag) override;
  c10::intrusive_ptr<c10d::Work> recvAnysource(Tensors& tensors, int tag) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  /// Between the two, this thread's operations are only started. Collectives are done when
  /// endCoalescing() returns; sends and receives when its Work is.
  void startCoalescing() override;
  c10::intrusive_ptr<c10d::Work> endCoalescing() override;

  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& opts) override;
  /// The ranks that stay, and they alone, call: a group of their own, in the same order, whatever
  /// became of this one.
  c10::intrusive_ptr<c10d::Backend> shrink(
      const std::vector<std::int64_t>& excluded, int flags = 0,
      const c10::intrusive_ptr<Options>& opts = nullptr) override;
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  bool supportsReconfigure() const override { return true; }
  /// What the others hand to reconfigure() for this rank.
  c10d::ReconfigureHandle get_reconfigure_handle() const override;
  /// Makes the group anew of the ranks whose handles are given, which all call: a job of its own,
  /// whatever became of the one before. No other call of the group goes on at the same time.
  c10::intrusive_ptr<c10d::Work> reconfigure(const c10d::ReconfigureOptions& opts) override;
#endif
  /// Fails every operation of the job on every rank.
  void abort() override;
  /// All ranks of the group call it: what is under way ends, and the group goes on, also after
  /// abort() or an error. Not of the job's first group, with which all others would end.
  void renew();
  /// Leaves the group, and the job with its last group.
  void shutdown() override;
  /// With the last reference: the destructor waits for the weak one that Groups has.
  void release_resources() override { shutdown(); }

  /// The job's last operations on this rank, as JSON.
  std::string flight_record();
  /// As Communicator::write_trace(); the group has all ranks of its job.
  void write_trace(const std::string& path);
  /// Something that the program did, by CLOCK_MONOTONIC. Nothing where nobody keeps a timeline.
  void note(const std::string& name, std::int64_t start_ns, std::int64_t end_ns);

 private:
  struct Manner {
    std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
    bool async = true;
  };
  /// What startCoalescing() has begun on a thread.
  struct Batch {
    std::vector<Operation> operations;
    std::vector<sprat::Work> works;
    Work::Parts observed;
    std::vector<DeviceCallParts> on_device;  ///< Started together at the end.
    bool messages = false;                   ///< Has sends or receives of host tensors.
  };

  /// Known to the process's groups.
  static c10::intrusive_ptr<Backend> make(std::optional<sprat::Communicator> ranks,
                                          const Membership& membership);
  /// The job's numbers of some of the group's ranks.
  std::vector<std::uint64_t> job_ranks(const std::vector<int>& members) const;
  static sprat::Communicator join_job(const Membership& membership);
  /// Leaves the job with the last group of it.
  void drop_ranks();
  std::shared_ptr<sprat::Communicator> ranks();
  std::shared_ptr<sprat::Communicator> ranks_or_null();
  c10::intrusive_ptr<c10d::Work> issue(const Tensors& inputs, const Tensors& outputs, Manner manner,
                                       const MakeCall& make);
  c10::intrusive_ptr<c10d::Work> issue(Call call, Manner manner);
  c10::intrusive_ptr<c10d::Work> issue_on(at::Device device, DeviceCallParts parts, Manner manner);
  /// Of one device, as one operation of the lane for messages or of the one for collectives.
  c10::intrusive_ptr<c10d::Work> start_on(at::Device device, std::vector<DeviceCallParts> parts);
  /// What a batch has of devices' tensors, one Work for each lane.
  void start_batch_on_devices(Batch& batch, std::vector<c10::intrusive_ptr<c10d::Work>>& works);
  ProfiledCall profiled(const Operation& operation, std::uint64_t number) const;
  /// all_gather of several tensors a rank.
  c10::intrusive_ptr<c10d::Work> gather_several(std::vector<Tensors>& outputs, Tensors& inputs,
                                                const c10d::AllgatherOptions& opts);
  c10::intrusive_ptr<Work> start(Call call, sprat::Communicator& ranks, const Observed& observed);
  /// Starts what is not waited for here; an operation that is refused has ended.
  sprat::Work begun(Call& call, sprat::Communicator& ranks, const Observed& observed);
  Observed observe(const Operation& operation, std::uint64_t number, Manner manner);
  /// Null if this thread has none open.
  Batch* open_batch();

  Membership membership_;                       ///< Its store is in observer_.
  std::shared_ptr<Observer> observer_;          ///< Shared with Works, which outlive the group.
  std::atomic<std::uint64_t> sequence_ = 0;     ///< Operations so far.
  std::uint64_t monitored_barriers_ = 0;        ///< So far; one thread calls.
  std::uint64_t shrunk_ = 0;                    ///< Calls of shrink() so far; one thread calls.
  const int first_rank_;                        ///< Before reconfigure() gave it another.
  const std::string nonce_;                     ///< In the handle of reconfigure().
  std::set<std::int64_t> instances_;            ///< Of reconfigure(); one thread calls.
  std::atomic<bool> revoked_ = false;           ///< By abort() here, until reconfigure().
  std::atomic<int> batches_open_ = 0;           ///< batches_.size(), for a look without the lock.
  std::mutex mutex_;                            ///< Guards what follows.
  std::shared_ptr<sprat::Communicator> ranks_;  ///< Shared with calls under way.
  std::map<std::thread::id, Batch> batches_;
  DeviceLanes lanes_;  ///< Guards itself.
};

}  // namespace sprat::pytorch
