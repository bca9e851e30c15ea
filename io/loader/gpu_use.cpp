// NVML comes with the driver and not with a toolkit, so it is looked for when it is wanted, and the
// few functions that we call are declared here as nvml.h has them. Their names end in the versions
// of their shapes, so a driver that changes one gives it another name.
#include "io/loader/gpu_use.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"

namespace sprat::io {

/// NVML, begun, with the GPUs that it shows.
class GpuUse::Library {
  // nvml.h of CUDA 12.9: nvmlReturn_t is an enum, nvmlDevice_t a pointer to what is NVML's own.
  using Device = void*;
  enum : int { success = 0, insufficient_size = 7 };
  struct Utilization {
    unsigned gpu = 0, memory = 0;  // percent
  };
  struct Process {
    unsigned pid = 0;
    unsigned long long memory = 0;
    unsigned gpu_instance = 0, compute_instance = 0;
  };
  static_assert(sizeof(Utilization) == 8 && sizeof(Process) == 24);
  using Processes = int(Device, unsigned*, Process*);

 public:
  /// Throws Error{unavailable} saying what is missing.
  explicit Library(const char* name) : opened_(dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
    need(opened_ != nullptr, dlerror());
    find(begin_, "nvmlInit_v2");
    find(end_, "nvmlShutdown");
    find(error_, "nvmlErrorString");
    find(count_, "nvmlDeviceGetCount_v2");
    find(device_, "nvmlDeviceGetHandleByIndex_v2");
    find(use_, "nvmlDeviceGetUtilizationRates");
    // Drivers before 510 have none of that shape, and then nobody says whose a GPU is.
    processes_ = reinterpret_cast<Processes*>(
        dlsym(opened_.get(), "nvmlDeviceGetComputeRunningProcesses_v3"));
    check(begin_(), "nvmlInit_v2");
    find_devices();
  }
  /// Calls of nvmlInit_v2 are counted, so others in this process keep theirs.
  ~Library() { end_(); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  /// A GPU that tells nothing is left out, and does not count as idle.
  std::optional<double> busy() {
    Mean mine, all;
    int refusal = success;
    for (const Device device : devices_) {
      Utilization use;
      if (const int code = use_(device, &use); code != success) {
        refusal = code;
        continue;
      }
      const double share = std::min(use.gpu, 100u) / 100.0;
      all.add(share);
      if (is_ours(device)) {
        mine.add(share);
      }
    }
    // Of a GPU that is cut into instances (MIG) NVML tells no use.
    if (all.count == 0 && refusal != success && !std::exchange(complained_, true)) {
      log().info("how busy the GPUs are is not measured: {}", error_(refusal));
    }
    return mine.count > 0 ? mine.value() : all.value();
  }

 private:
  struct Mean {
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
  struct Close {
    void operator()(void* opened) const noexcept { dlclose(opened); }
  };

  template <class Function>
  void find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(opened_.get(), name));
    need(function != nullptr, "the library has no ", name, ": it is not NVIDIA's");
  }

  void check(int code, const char* call) const {
    need(code == success, call, ": ", code == success ? "" : error_(code));
  }

  void find_devices() {
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

  bool is_ours(Device device) {
    if (processes_ == nullptr) {
      return false;
    }
    // Asked anew each time: a process comes to a GPU with its first call of CUDA.
    auto count = static_cast<unsigned>(running_.size());
    int code = processes_(device, &count, running_.data());
    if (code == insufficient_size) {
      running_.resize(count + 8);  // some may come until we ask again
      count = static_cast<unsigned>(running_.size());
      code = processes_(device, &count, running_.data());
    }
    const auto end = running_.begin() + std::min<std::ptrdiff_t>(count, std::ssize(running_));
    return code == success && std::find_if(running_.begin(), end, [](const Process& process) {
                                return process.pid == static_cast<unsigned>(getpid());
                              }) != end;
  }

  const std::unique_ptr<void, Close> opened_;
  int (*begin_)() = nullptr;
  int (*end_)() = nullptr;
  const char* (*error_)(int) = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*device_)(unsigned, Device*) = nullptr;
  int (*use_)(Device, Utilization*) = nullptr;
  Processes* processes_ = nullptr;
  std::vector<Device> devices_;
  std::vector<Process> running_ = std::vector<Process>(64);
  bool complained_ = false;
};

GpuUse::GpuUse(std::string library) : name_(std::move(library)) {}
GpuUse::~GpuUse() = default;

std::optional<double> GpuUse::busy() {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(tried_, true)) {
    try {
      library_ = std::make_unique<Library>(name_.c_str());
    } catch (const Error& error) {
      // Most machines have no GPU, and miss nothing.
      log().debug("how busy GPUs are is not measured: {}", std::string_view(error.what()));
    }
  }
  return library_ ? library_->busy() : std::nullopt;
}

}  // namespace sprat::io
