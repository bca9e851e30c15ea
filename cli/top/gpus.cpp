#include "cli/top/gpus.hpp"

#include <algorithm>
#include <limits>

#include "comm/base/nvml.hpp"
#include "sprat/error.hpp"

namespace sprat::cli {
namespace {

// NVML_VALUE_NOT_AVAILABLE, as where a driver runs under Windows' model of one.
constexpr auto not_told = std::numeric_limits<unsigned long long>::max();

/// Of the GPUs of one process.
struct BusySum {
  double sum = 0;
  int count = 0;
};

}  // namespace

GpuProcesses::GpuProcesses(const std::string& library) {
  try {
    library_ = std::make_unique<Nvml>(library.c_str());
  } catch (const Error&) {  // most machines have no GPU, and no column of it
  }
}
GpuProcesses::~GpuProcesses() = default;
GpuProcesses::GpuProcesses(GpuProcesses&&) noexcept = default;

std::optional<std::map<pid_t, ProcessGpus>> GpuProcesses::of(const std::vector<pid_t>& processes) {
  if (!library_) {
    return std::nullopt;
  }
  std::map<pid_t, ProcessGpus> used;
  std::map<pid_t, BusySum> sums;
  for (std::size_t device = 0; device < library_->devices(); ++device) {
    const std::optional<double> busy = library_->busy(device);
    for (const Nvml::Process& process : library_->processes(device)) {
      const auto pid = static_cast<pid_t>(process.pid);
      if (std::ranges::find(processes, pid) == processes.end()) {
        continue;
      }
      ProcessGpus& its = used[pid];
      if (process.memory != not_told) {
        its.bytes = its.bytes.value_or(0) + process.memory;
      }
      if (busy) {
        BusySum& sum = sums[pid];
        sum.sum += *busy;
        its.busy = sum.sum / ++sum.count;
      }
    }
  }
  return used;
}

}  // namespace sprat::cli
