#include "io/loader/gpu_use.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "comm/base/nvml.hpp"

namespace sprat::io {
namespace {

struct MeanShare {
  double sum = 0;
  int count = 0;
  void add(double value) {
    sum += value;
    ++count;
  }
  std::optional<double> value() const {
    return count > 0 ? std::optional(sum / count) : std::nullopt;
  }
};

bool has_this_process(const std::vector<Nvml::Process>& processes) {
  return std::ranges::find(processes, static_cast<unsigned>(getpid()), &Nvml::Process::pid) !=
         processes.end();
}

}  // namespace

GpuUse::GpuUse(std::string library) : name_(std::move(library)) {}
GpuUse::~GpuUse() = default;

std::optional<double> GpuUse::busy() {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(tried_, true)) {
    try {
      library_ = std::make_unique<Nvml>(name_.c_str());
    } catch (const Error& error) {
      // Most machines have no GPU, and miss nothing.
      log().debug("how busy GPUs are is not measured: {}", std::string_view(error.what()));
    }
  }
  return library_ ? mean_busy() : std::nullopt;
}

// A GPU that tells nothing is left out, and does not count as idle.
std::optional<double> GpuUse::mean_busy() {
  MeanShare mine, all;
  for (std::size_t device = 0; device < library_->devices(); ++device) {
    const std::optional<double> share = library_->busy(device);
    if (!share) {
      continue;
    }
    all.add(*share);
    if (has_this_process(library_->processes(device))) {
      mine.add(*share);
    }
  }
  if (all.count == 0 && !std::exchange(complained_, true)) {
    log().info("how busy the GPUs are is not measured: {}", library_->refusal());
  }
  return mine.count > 0 ? mine.value() : all.value();
}

}  // namespace sprat::io
