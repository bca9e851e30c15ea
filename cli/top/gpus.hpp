// What processes have on this host's GPUs, as NVIDIA's management library tells.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/top/look.hpp"

namespace sprat {
class Nvml;
}

namespace sprat::cli {

class GpuProcesses {
 public:
  explicit GpuProcesses(const std::string& library = "libnvidia-ml.so.1");
  ~GpuProcesses();
  GpuProcesses(GpuProcesses&&) noexcept;

  /// Of those processes that are on a GPU; empty where no GPU tells.
  std::optional<std::map<pid_t, ProcessGpus>> of(const std::vector<pid_t>& processes);

 private:
  std::unique_ptr<Nvml> library_;  ///< Null: not there.
};

}  // namespace sprat::cli
