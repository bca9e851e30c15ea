// An operation of Sprat as PyTorch's Work.
#pragma once

#include <c10/util/SmallVector.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "plugins/torch/native/observing/observer.hpp"
#include "plugins/torch/native/torch_version.hpp"
#include "sprat/communicator.hpp"

namespace sprat::pytorch {

/// What an operation is, beside its Sprat part.
struct Operation {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* title = "sprat:unknown";  ///< For the profiler, "sprat:all_reduce".
  std::vector<at::Tensor> inputs;       ///< Kept until done, as are the others.
  std::vector<at::Tensor> results;      ///< What the future holds.
  std::vector<at::Tensor> staging;
  int peer = -1;  ///< The root, or whom a message goes to or comes from; -1: nobody, or anybody.
  std::vector<std::int64_t> input_splits, output_splits;  ///< Rows for each rank; none: equal ones.
  /// Brings what goes out into copies, where there are some. Once, before it is started; may be
  /// null.
  std::function<void()> prepare;
  /// Puts what has come into the tensors that it is for. Once, when done well; may be null.
  std::function<void()> finish;
};
/// "all_reduce of [4, 3] float32".
std::string describe(const Operation& operation);
/// If collectives in flight may be inputs of graphs, c10d has registered the Work of every call,
/// and expects that waiting for it takes it out, however it ended: it would stay there for ever.
void unregister(c10d::Work& work);

/// Any thread. Its operation is finished by whoever first sees it done: wait(), isCompleted() or,
/// if there is a future, a thread of CallbackThreads. Futures' callbacks run with no lock held.
class Work final : public c10d::Work {
 public:
  /// `observed` are the operations that it is: one, or those of a batch.
  using Parts = c10::SmallVector<Observed, 1>;
  Work(Operation operation, sprat::Work work, std::shared_ptr<Observer> observer, Parts observed);
  /// An operation that nobody waited for goes on, keeps its tensors, and is finished.
  ~Work() override;

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override { wait(); }
  /// Throws the operation's error, or DistBackendError once `timeout` passes; the operation goes on
  /// then.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  std::uint64_t getSequencenumber() const override { return parts_.front().sequence; }
  /// Milliseconds from the call to the end. Throws c10::Error if the operation is not done, or
  /// began before timing was enabled.
  float getDuration() const override;
  /// What the operation got.
  std::chrono::milliseconds getTimeout() const SPRAT_SINCE_TORCH_2_14;
#if SPRAT_TORCH_HAS_COMPLETION_HOOKS
  std::uint64_t getCompletionKey() const override { return parts_.front().key; }
#endif

  /// Sees to it that the operation is finished when it is done, though nobody waits for it.
  void follow() { watch(); }
  /// The operation, which is done or will be, finished. Throws nothing.
  void complete();

 private:
  /// Makes the futures, and sees to it that somebody completes them. Once does something.
  void watch();
  void complete_futures();
  /// What complete() does, once; why it failed, or null. The caller holds completing_.
  std::exception_ptr finish(const std::optional<Error>& error);

  sprat::Work work_;
  const std::shared_ptr<Observer> observer_;  ///< Shared with the group's other works.
  const Parts parts_;                         ///< At least one.
  /// Of Observed::Clock, when a thread of Sprat's saw the end; 0: none has. Relaxed: it is a time.
  std::atomic<Observed::Clock::rep> done_at_ = 0;
  Observed::Clock::time_point ended_at_{};  ///< Written before ended_.
  std::mutex completing_;  ///< Guards operation_ until completed_; taken before mutex_.
  Operation operation_;
  std::atomic<bool> ended_ = false;  ///< Release: exception_ and the results are complete.
  c10::intrusive_ptr<c10::ivalue::Future> future_, future_result_;  ///< Made under mutex_, once.
};

/// Several as one, done when all are.
class Works final : public c10d::Work {
 public:
  explicit Works(std::vector<c10::intrusive_ptr<c10d::Work>> works) : works_(std::move(works)) {}
  bool isCompleted() override;
  bool isSuccess() const override;
  void synchronize() override { wait(); }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;

 private:
  const std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

/// Runs an operation that the caller waits for, and finishes it: `start` does and waits. Throws
/// PyTorch's errors.
void run_now(const Operation& operation, Observer& observer, const Observed& observed,
             const std::function<void()>& start);

}  // namespace sprat::pytorch
