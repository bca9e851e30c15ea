// The c10d backend "sprat": PyTorch's process groups on a Sprat communicator.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "plugins/torch/native/calls.hpp"
#include "plugins/torch/native/device_lane.hpp"
#include "plugins/torch/native/work.hpp"
#include "sprat/communicator.hpp"

namespace sprat::pytorch {

class Backend;

/// The groups of a process that live, so that all can be left before it ends: by whoever they were
/// made, split() included. It keeps none alive. Any thread.
class Groups final {
 public:
  void add(const c10::intrusive_ptr<Backend>& group);
  void remove(const Backend& group);
  /// Shuts all of them down, the newest first.
  void leave();
  std::size_t size();

 private:
  std::mutex mutex_;
  std::vector<c10::weak_intrusive_ptr<Backend>> groups_;  ///< In the order of their making.
};

/// Any thread may call; calls of one group serialise, and every rank makes the same ones in the
/// same order. Operations that the caller waits for at once (asyncOp false) are done when the call
/// returns, which then returns null. An operation that fails ends all groups of the job.
class Backend final : public c10d::Backend {
 public:
  /// How a group is joined; `group` is equal on its members.
  struct Membership {
    c10::intrusive_ptr<c10d::Store> store;
    int rank = 0, size = 1;
    std::chrono::milliseconds timeout{};
    std::string group;
    std::shared_ptr<Groups> groups = nullptr;  ///< Shared with the process's others, or null.
  };

  /// A job of its own, whose ranks meet in the store.
  static c10::intrusive_ptr<Backend> join(Membership membership);
  /// A group of this one's ranks, in their order. Only its members call.
  c10::intrusive_ptr<Backend> create_group(const std::vector<int>& ranks, Membership membership);
  Backend(sprat::Communicator ranks, Membership membership);
  ~Backend() override;

  const std::string getBackendName() const override { return "sprat"; }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options = {}) override;
  c10::intrusive_ptr<Options> getBackendOptions() override;
  void setTimeout(std::chrono::milliseconds timeout) override;
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
  /// Fails every operation of the job on every rank.
  void abort() override;
  /// Leaves the group, and the job with its last group.
  void shutdown() override;
  /// With the last reference: the destructor waits for the weak one that Groups has.
  void release_resources() override { shutdown(); }

  /// The job's last operations on this rank, as JSON.
  std::string flight_record();

 private:
  /// Makes a Call of host tensors: of those given, or of what stands for a device's.
  using MakeCall = std::function<Call(const Tensors& inputs, const Tensors& outputs)>;
  struct Manner {
    std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
    bool async = true;
  };
  /// What startCoalescing() has begun on a thread.
  struct Batch {
    std::vector<Operation> operations;
    std::vector<sprat::Work> works;
    std::vector<c10::intrusive_ptr<c10d::Work>> device_works;
    bool messages = false;  ///< Has sends or receives.
  };

  /// Known to the process's groups.
  static c10::intrusive_ptr<Backend> make(sprat::Communicator ranks, const Membership& membership);
  std::shared_ptr<sprat::Communicator> ranks();
  /// The same ranks again: device tensors' operations start in an order of their own.
  std::shared_ptr<sprat::Communicator> device_ranks();
  DeviceLane& lane(at::DeviceType type);
  /// Waits for device tensors' operations, which have an order of their own.
  void settle_device();
  c10::intrusive_ptr<c10d::Work> issue(const Tensors& inputs, const Tensors& outputs, Manner manner,
                                       const MakeCall& make);
  c10::intrusive_ptr<c10d::Work> issue(Call call, Manner manner);
  c10::intrusive_ptr<Work> start(Call call, std::chrono::milliseconds timeout, bool of_device);
  /// Null if this thread has none open.
  Batch* open_batch();
  std::chrono::milliseconds or_default(std::chrono::milliseconds timeout) const;

  Membership membership_;               ///< Its store is in notes_.
  const std::shared_ptr<Notes> notes_;  ///< Shared with Works, which outlive the group.
  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<std::uint64_t> sequence_ = 0;  ///< Operations so far.
  std::uint64_t monitored_barriers_ = 0;     ///< So far; one thread calls.
  std::atomic<int> batches_open_ = 0;        ///< batches_.size(), for a look without the lock.
  std::mutex mutex_;                         ///< Guards what follows.
  std::shared_ptr<sprat::Communicator> ranks_, device_ranks_;  ///< Shared with calls under way.
  std::map<std::thread::id, Batch> batches_;
  std::unique_ptr<DeviceLane> lane_;  ///< Made with the first device tensor.
};

}  // namespace sprat::pytorch
