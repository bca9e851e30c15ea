// How busy the GPUs are that this process computes on, as NVIDIA's management library (NVML) tells.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace sprat {
class Nvml;
}

namespace sprat::io {

/// Any thread, several at once.
class GpuUse final {
 public:
  /// Nothing happens before the first busy(), which opens `library`: a name as dlopen() takes it.
  explicit GpuUse(std::string library = "libnvidia-ml.so.1");
  ~GpuUse();
  GpuUse(const GpuUse&) = delete;
  GpuUse& operator=(const GpuUse&) = delete;

  /// The share of its last sample period (a sixth of a second to one) in which a GPU ran a kernel,
  /// from 0 to 1: the mean over the GPUs that this process has a context on or, where NVML names
  /// none, as in containers with process ids of their own, over all that it shows. Empty if nobody
  /// tells; why not is logged once. The first call may take a second, where the driver sleeps.
  std::optional<double> busy();

 private:
  std::optional<double> mean_busy();

  const std::string name_;
  std::mutex mutex_;  // guards what follows
  bool tried_ = false;
  std::unique_ptr<Nvml> library_;  // null if it cannot be asked
  bool complained_ = false;
};

}  // namespace sprat::io
