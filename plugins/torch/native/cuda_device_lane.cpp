// CUDA tensors by way of pinned host memory that peers read in place.
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "plugins/torch/native/device_lane.hpp"
#include "plugins/torch/native/memory.hpp"

namespace sprat::pytorch {
namespace {

/// Blocks of host memory that the device copies to and from, kept for the next operation. Used by
/// one thread at a time; the lane's mutex guards it.
class PinnedBlocks final {
 public:
  ~PinnedBlocks() {
    for (auto& [bytes, block] : kept_) {
      cudaHostUnregister(block.data_ptr());  // unchecked: as the process ends, CUDA may be gone
    }
  }

  at::Tensor take(std::int64_t bytes) {
    const auto found = kept_.lower_bound(bytes);
    // A block that is much larger than needed is left for an operation that needs it.
    if (found != kept_.end() && found->first <= 2 * bytes) {
      at::Tensor block = std::move(found->second);
      kept_.erase(found);
      return block;
    }
    at::Tensor block = empty_shared({std::max<std::int64_t>(bytes, 1)}, at::kByte);
    C10_CUDA_CHECK(cudaHostRegister(block.data_ptr(), block.nbytes(), cudaHostRegisterDefault));
    return block;
  }

  void give(at::Tensor block) { kept_.emplace(block.numel(), std::move(block)); }

 private:
  std::multimap<std::int64_t, at::Tensor> kept_;
};

/// What wait() waits for.
class DeviceWork final : public c10d::Work {
 public:
  DeviceWork(int rank, c10d::OpType type, at::Device device, std::vector<at::Tensor> results)
      : c10d::Work(rank, type),
        results_(std::move(results)),
        future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors(),
                                                         std::vector<c10::Device>{device})) {}

  /// The host's part has ended; what follows on `stream` has been queued.
  void end(const c10::cuda::CUDAStream& stream, std::exception_ptr error) {
    if (!error) {
      copied_back_.record(stream);
    }
    {
      const std::lock_guard lock(mutex_);
      exception_ = error;
      completed_ = true;
    }
    cv_.notify_all();
    if (error) {
      future_->setError(error);
    } else {
      // The future records the current stream, and whoever uses it waits for that one.
      const c10::cuda::CUDAStreamGuard guard(stream);
      future_->markCompleted(c10::IValue(results_));
    }
  }

  bool isCompleted() override {
    const std::lock_guard lock(mutex_);
    return completed_ && (exception_ || copied_back_.query());
  }
  bool isSuccess() const override {
    const std::lock_guard lock(mutex_);
    return completed_ && !exception_;
  }
  std::vector<at::Tensor> result() override { return results_; }
  void synchronize() override { wait(); }

  /// Blocks until the host's part is done, then makes the current stream wait for the copy back.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override {
    std::unique_lock lock(mutex_);
    const auto done = [this] { return completed_; };
    if (timeout > kNoTimeout) {
      if (!cv_.wait_for(lock, timeout, done)) {
        C10_THROW_ERROR(DistBackendError,
                        c10::str("Wait timeout: ", c10d::opTypeToString(opType_),
                                 " is not done after ", timeout.count(), " ms; it goes on"));
      }
    } else {
      cv_.wait(lock, done);
    }
    if (exception_) {
      std::rethrow_exception(exception_);
    }
    copied_back_.block(c10::cuda::getCurrentCUDAStream());
    return true;
  }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  const std::vector<at::Tensor> results_;
  at::cuda::CUDAEvent copied_back_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// One operation between the device and Sprat.
struct Job {
  DeviceOperation operation;
  std::vector<at::Tensor> blocks;  ///< Pinned memory that the host tensors lie in.
  Tensors host_inputs, host_outputs;
  c10::cuda::CUDAStream stream;
  at::cuda::CUDAEvent copied;  ///< The inputs are in host memory.
  c10::intrusive_ptr<DeviceWork> work;
};

class CudaDeviceLane final : public DeviceLane {
 public:
  CudaDeviceLane() : thread_([this] { start_jobs(); }) {}

  ~CudaDeviceLane() override {
    settle();
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  c10::intrusive_ptr<c10d::Work> run(DeviceOperation operation) override {
    const Tensors& either = operation.inputs.empty() ? operation.outputs : operation.inputs;
    const at::Device device = either.front().device();
    const c10::cuda::CUDAGuard device_guard(device);
    const auto current = c10::cuda::getCurrentCUDAStream(device.index());
    auto job =
        std::make_shared<Job>(Job{.operation = std::move(operation),
                                  .blocks = {},
                                  .host_inputs = {},
                                  .host_outputs = {},
                                  .stream = c10::cuda::getStreamFromPool(false, device.index()),
                                  .copied = {},
                                  .work = {}});
    // The copies wait for what the caller has queued, and go on a stream of their own, so that the
    // caller's later work does not wait for them.
    at::cuda::CUDAEvent ready;
    ready.record(current);
    ready.block(job->stream);
    copy_in(*job);
    job->copied.record(job->stream);
    job->work = c10::make_intrusive<DeviceWork>(job->operation.rank, job->operation.type, device,
                                                job->operation.outputs);
    {
      const std::lock_guard lock(mutex_);
      ++under_way_;
      jobs_.push_back(job);
    }
    changed_.notify_all();
    return job->work;
  }

  void settle() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return under_way_ == 0; });
  }

 private:
  /// The host tensors lie one after the other in one block. A list whose tensors are adjacent needs
  /// no further copy on the way to Sprat.
  Tensors stand_ins(const Tensors& tensors, Job& job) {
    std::int64_t bytes = 0;
    for (const at::Tensor& tensor : tensors) {
      bytes += static_cast<std::int64_t>(tensor.nbytes());
    }
    at::Tensor block;
    {
      const std::lock_guard lock(mutex_);
      block = blocks_.take(bytes);
    }
    Tensors hosts;
    std::int64_t at = 0;
    for (const at::Tensor& tensor : tensors) {
      const auto size = static_cast<std::int64_t>(tensor.nbytes());
      hosts.push_back(block.narrow(0, at, size).view(tensor.scalar_type()).view(tensor.sizes()));
      at += size;
    }
    job.blocks.push_back(std::move(block));
    return hosts;
  }

  /// Queues the copies on the job's stream. A tensor that is both input and output has one
  /// stand-in, so an operation in place stays in place.
  void copy_in(Job& job) {
    const c10::cuda::CUDAStreamGuard guard(job.stream);
    const DeviceOperation& operation = job.operation;
    const bool in_place =
        operation.inputs.size() == operation.outputs.size() &&
        std::equal(operation.inputs.begin(), operation.inputs.end(), operation.outputs.begin(),
                   [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); });
    if (!operation.inputs.empty()) {
      job.host_inputs = stand_ins(operation.inputs, job);
    }
    if (in_place) {
      job.host_outputs = job.host_inputs;
    } else if (!operation.outputs.empty()) {
      job.host_outputs = stand_ins(operation.outputs, job);
    }
    for (std::size_t i = 0; i < operation.inputs.size(); ++i) {
      job.host_inputs[i].copy_(operation.inputs[i], /*non_blocking=*/true);
      // The caller may free the tensor before the copy has run: the allocator must not give its
      // memory away until this stream is past that.
      c10::cuda::CUDACachingAllocator::recordStream(operation.inputs[i].storage().data_ptr(),
                                                    job.stream);
    }
    for (const at::Tensor& output : operation.outputs) {
      c10::cuda::CUDACachingAllocator::recordStream(output.storage().data_ptr(), job.stream);
    }
  }

  void start_jobs() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (jobs_.empty()) {
        return;
      }
      const std::shared_ptr<Job> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      start(job);
      lock.lock();
    }
  }

  /// The job is shared by the thread that starts it and the one that ends it, whichever is later.
  void start(const std::shared_ptr<Job>& job) {
    try {
      const c10::cuda::CUDAGuard guard(job->stream.device());
      job->copied.synchronize();
      const auto work = job->operation.start(job->host_inputs, job->host_outputs);
      work->getFuture()->addCallback(
          [this, job, work](c10::ivalue::Future&) { end(*job, work->exception()); });
    } catch (...) {
      end(*job, std::current_exception());
    }
  }

  void end(Job& job, std::exception_ptr error) {
    const c10::cuda::CUDAGuard device_guard(job.stream.device());
    if (!error) {
      try {
        const c10::cuda::CUDAStreamGuard guard(job.stream);
        for (std::size_t i = 0; i < job.operation.outputs.size(); ++i) {
          job.operation.outputs[i].copy_(job.host_outputs[i], /*non_blocking=*/true);
        }
      } catch (...) {
        error = std::current_exception();
      }
    }
    job.work->end(job.stream, error);
    job.stream.synchronize();  // the copy back reads the pinned memory until here
    job.operation = {};
    {
      const std::lock_guard lock(mutex_);
      job.host_inputs.clear();
      job.host_outputs.clear();
      for (at::Tensor& block : job.blocks) {
        blocks_.give(std::move(block));
      }
      --under_way_;
    }
    changed_.notify_all();
  }

  std::mutex mutex_;  ///< Guards what follows, but for the thread.
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> jobs_;
  PinnedBlocks blocks_;
  int under_way_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace

bool serves(at::DeviceType type) { return type == at::kCUDA; }

std::unique_ptr<DeviceLane> open_device_lane(at::DeviceType type) {
  TORCH_CHECK_VALUE(serves(type), "sprat takes CPU and CUDA tensors, not those of ", type);
  return std::make_unique<CudaDeviceLane>();
}

}  // namespace sprat::pytorch
