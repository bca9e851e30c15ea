// NVIDIA's management library (NVML), as far as Sprat asks it: how busy GPUs are, and who is on
// them.
#pragma once

#include <memory>
#include <optional>
#include <vector>

namespace sprat {

/// The library, begun, with the GPUs that it shows to this process. One thread at a time.
class Nvml {
 public:
  /// Opens `library`: a name as dlopen() takes it. Throws Error{unavailable} saying what is
  /// missing, also if there is no GPU. May take a second, where the driver sleeps.
  explicit Nvml(const char* library);
  /// Calls of nvmlInit_v2 are counted, so others in this process keep theirs.
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::size_t devices() const { return devices_.size(); }
  /// The share of its last sample period (a sixth of a second to one) in which it ran a kernel;
  /// nothing if it does not tell, as a GPU that is cut into instances (MIG): refusal() says why.
  std::optional<double> busy(std::size_t device);
  const char* refusal() const { return error_(refused_); }

  /// As nvml.h of CUDA 12.9 has it.
  struct Process {
    unsigned pid = 0;
    unsigned long long memory = 0;  ///< Bytes; all ones: not told.
    unsigned gpu_instance = 0, compute_instance = 0;
  };
  /// Those that have a context there now; none where nobody tells, as before driver 510. Process
  /// ids are those of the namespace that the driver sees.
  std::vector<Process> processes(std::size_t device);

 private:
  // nvmlReturn_t is an enum, nvmlDevice_t a pointer to what is NVML's own.
  using Device = void*;
  struct Utilization {
    unsigned gpu = 0, memory = 0;  // percent
  };
  struct Close {
    void operator()(void* opened) const noexcept;
  };
  template <class Function>
  void find(Function*& function, const char* name);
  void check(int code, const char* call) const;
  void find_devices();

  const std::unique_ptr<void, Close> opened_;
  int (*begin_)() = nullptr;
  int (*end_)() = nullptr;
  const char* (*error_)(int) = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*device_)(unsigned, Device*) = nullptr;
  int (*use_)(Device, Utilization*) = nullptr;
  int (*processes_)(Device, unsigned*, Process*) = nullptr;
  std::vector<Device> devices_;
  std::vector<Process> running_ = std::vector<Process>(64);
  int refused_ = 0;
};

}  // namespace sprat
