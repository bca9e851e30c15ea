// An operation of a lane as PyTorch's Work.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "plugins/torch/native/devices/lanes.hpp"
#include "plugins/torch/native/work.hpp"
#include "sprat/device.hpp"

namespace sprat::pytorch {

/// What the lane's thread starts, which comes after the call: a receive from anybody knows by it
/// who sent. Any thread.
class Started final {
 public:
  void set(sprat::Work work) {
    const std::lock_guard lock(mutex_);
    work_ = std::move(work);
  }
  sprat::Work get() const {
    const std::lock_guard lock(mutex_);
    return work_;
  }

 private:
  mutable std::mutex mutex_;
  sprat::Work work_;
};

/// Any thread. Tensors are kept until the device is done with them. An error that comes after
/// wait() is told by exception(), by the next operation of the group, and by its getError().
class StreamWork final : public c10d::Work {
 public:
  StreamWork(Operation operation, const OpenLane& lane, std::shared_ptr<Observer> observer,
             pytorch::Work::Parts observed);

  /// The lane has taken it. Once, before anybody else sees this.
  void taken(sprat::DeviceWork work, std::shared_ptr<Started> started);

  bool isCompleted() override { return handle().done(); }
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  /// Waits until the message is there, since a number is asked for and not a tensor.
  int sourceRank() const override;
  std::vector<at::Tensor> result() override { return results_; }
  void synchronize() override { wait(); }
  void blockCurrentStream() override { wait(); }
  /// Makes the current stream of the tensors' device wait, and returns at once. Throws if the
  /// operation has failed already. With a timeout the host waits, as it is to be told.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  /// Complete at once; whoever takes its value waits on the device.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  /// Completed when the operation has ended.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override { return future_result_; }
  std::uint64_t getSequencenumber() const override { return parts_.front().sequence; }
  float getDuration() const override;
  std::chrono::milliseconds getTimeout() const SPRAT_SINCE_TORCH_2_14;
#if SPRAT_TORCH_HAS_COMPLETION_HOOKS
  std::uint64_t getCompletionKey() const override { return parts_.front().key; }
#endif

 private:
  void ended();
  /// Of an operation that has ended: an empty one, which is done.
  sprat::DeviceWork handle() const;

  const at::Device device_;
  const std::shared_ptr<OwnStream> futures_;
  const std::shared_ptr<Observer> observer_;
  const pytorch::Work::Parts parts_;  ///< At least one.
  const std::string title_;
  const std::vector<at::Tensor> results_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_result_;
  std::shared_ptr<Started> started_;  ///< Set by taken().
  Operation operation_;               ///< Its tensors, until ended() lets go of them.
  // Guarded by mutex_:
  sprat::DeviceWork work_;  ///< Until it has ended, since a lane has a limited number of them.
  Observed::Clock::time_point ended_at_{};
  c10::intrusive_ptr<c10::ivalue::Future> future_;  ///< Made when it is asked for.
};

}  // namespace sprat::pytorch
