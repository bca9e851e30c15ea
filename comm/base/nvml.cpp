// NVML comes with the driver and not with a toolkit, so it is looked for when it is wanted, and the
// few functions that we call are declared here as nvml.h has them. Their names end in the versions
// of their shapes, so a driver that changes one gives it another name.
#include "comm/base/nvml.hpp"

#include <dlfcn.h>

#include <algorithm>

#include "comm/base/check.hpp"

namespace sprat {
namespace {

enum : int { success = 0, insufficient_size = 7 };

}  // namespace

template <class Function>
void Nvml::find(Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(dlsym(opened_.get(), name));
  need(function != nullptr, "the library has no ", name, ": it is not NVIDIA's");
}

Nvml::Nvml(const char* library) : opened_(dlopen(library, RTLD_NOW | RTLD_LOCAL)) {
  static_assert(sizeof(Utilization) == 8 && sizeof(Process) == 24);
  need(opened_ != nullptr, dlerror());
  find(begin_, "nvmlInit_v2");
  find(end_, "nvmlShutdown");
  find(error_, "nvmlErrorString");
  find(count_, "nvmlDeviceGetCount_v2");
  find(device_, "nvmlDeviceGetHandleByIndex_v2");
  find(use_, "nvmlDeviceGetUtilizationRates");
  // Drivers before 510 have none of that shape, and then nobody says whose a GPU is.
  processes_ = reinterpret_cast<decltype(processes_)>(
      dlsym(opened_.get(), "nvmlDeviceGetComputeRunningProcesses_v3"));
  check(begin_(), "nvmlInit_v2");
  find_devices();
}

Nvml::~Nvml() { end_(); }

void Nvml::Close::operator()(void* opened) const noexcept { dlclose(opened); }

void Nvml::check(int code, const char* call) const {
  need(code == success, call, ": ", code == success ? "" : error_(code));
}

void Nvml::find_devices() {
  try {
    unsigned count = 0;
    check(count_(&count), "nvmlDeviceGetCount_v2");
    for (unsigned i = 0; i < count; ++i) {
      Device device = nullptr;
      // Of GPUs that are counted, some may be closed to this user.
      if (device_(i, &device) == success) {
        devices_.push_back(device);
      }
    }
    need(!devices_.empty(), "it shows no GPU to this process");
  } catch (...) {
    end_();  // no destructor runs for what its constructor left
    throw;
  }
}

std::optional<double> Nvml::busy(std::size_t device) {
  Utilization use;
  if (const int code = use_(devices_[device], &use); code != success) {
    refused_ = code;
    return std::nullopt;
  }
  return std::min(use.gpu, 100u) / 100.0;
}

// Asked anew each time: a process comes to a GPU with its first call of CUDA.
std::vector<Nvml::Process> Nvml::processes(std::size_t device) {
  if (processes_ == nullptr) {
    return {};
  }
  auto count = static_cast<unsigned>(running_.size());
  int code = processes_(devices_[device], &count, running_.data());
  if (code == insufficient_size) {
    running_.resize(count + 8);  // some may come until we ask again
    count = static_cast<unsigned>(running_.size());
    code = processes_(devices_[device], &count, running_.data());
  }
  const auto known = std::min<std::ptrdiff_t>(count, std::ssize(running_));
  return code == success ? std::vector<Process>(running_.begin(), running_.begin() + known)
                         : std::vector<Process>();
}

}  // namespace sprat
