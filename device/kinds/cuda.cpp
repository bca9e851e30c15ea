// A CUDA device: its primary context, which is also that of the CUDA runtime and of PyTorch.
#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/base/check.hpp"
#include "device/cuda_driver.hpp"
#include "sprat/device.hpp"

namespace sprat {
namespace {

using device::Address;
using device::CudaContext;
using device::CudaDriver;
using device::CudaEvent;
using device::CudaStream;
using device::Enumerator;
namespace cuda = device::cuda;

Address address_of(const void* pointer) { return reinterpret_cast<Address>(pointer); }
CudaStream stream_of(DeviceStream stream) { return static_cast<CudaStream>(stream); }
CudaEvent event_of(DeviceEvent event) { return static_cast<CudaEvent>(event); }

/// Makes a context the calling thread's while it lives. Threads that use one device, which most do,
/// pay for one look.
class Current final {
 public:
  Current(const CudaDriver& driver, CudaContext context) : driver_(driver) {
    CudaContext now = nullptr;
    driver.check(driver.context_get(&now), "cuCtxGetCurrent");
    if (now != context) {
      driver.check(driver.context_push(context), "cuCtxPushCurrent");
      pushed_ = true;
    }
  }
  ~Current() {
    if (pushed_) {
      CudaContext popped = nullptr;
      driver_.context_pop(&popped);
    }
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const CudaDriver& driver_;
  bool pushed_ = false;
};

/// Lets this thread make calls that a graph's capture elsewhere in the process forbids: they have
/// nothing to do with that graph.
class BesideCaptures final {
 public:
  explicit BesideCaptures(const CudaDriver& driver) : driver_(driver) {
    driver_.capture_mode(&mode_);
  }
  ~BesideCaptures() { driver_.capture_mode(&mode_); }
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
  const CudaDriver& driver_;
  Enumerator mode_ = cuda::capture_relaxed;  // each call puts the other one here
};

class CudaDevice final : public Device {
 public:
  CudaDevice(const CudaDriver& driver, int index) : driver_(driver), index_(index) {
    int device = 0;
    driver_.check(driver_.device_get(&device, index), "cuDeviceGet");
    std::array<char, 256> model{};
    driver_.check(driver_.device_name(model.data(), model.size(), device), "cuDeviceGetName");
    name_ = text("cuda:", index, " (", model.data(), ")");
    int same = 0;
    driver_.check(driver_.device_attribute(&same, cuda::attribute_same_host_pointer, device),
                  "cuDeviceGetAttribute");
    need(same != 0, name_, " sees pinned memory of the host at other addresses than the host does;",
         " Sprat does not serve such devices");
    // Never released: it is the whole process's, and streams of others may wait for our words.
    driver_.check(driver_.primary_retain(&context_, device), "cuDevicePrimaryCtxRetain");
  }

  const std::string& name() const noexcept override { return name_; }
  int index() const noexcept override { return index_; }

  void* allocate(std::size_t bytes) override {
    const Current current(driver_, context_);
    const BesideCaptures beside(driver_);
    Address memory = 0;
    // The driver refuses to allocate nothing.
    check(driver_.memory_allocate(&memory, bytes == 0 ? 1 : bytes), "cuMemAlloc");
    return reinterpret_cast<void*>(memory);
  }

  void free(void* memory) noexcept override {
    quietly([&] { driver_.memory_free(address_of(memory)); });
  }

  DeviceMemory memory_of(const void* pointer) override {
    const Current current(driver_, context_);
    unsigned type = 0, managed = 0;
    int ordinal = -1;
    std::array attributes = {cuda::pointer_memory_type, cuda::pointer_is_managed,
                             cuda::pointer_device};
    std::array<void*, 3> values = {&type, &managed, &ordinal};
    // Memory that the driver does not know has zeros, and is no error.
    check(driver_.pointer_attributes(attributes.size(), attributes.data(), values.data(),
                                     address_of(pointer)),
          "cuPointerGetAttributes");
    if (managed != 0) {
      return {MemoryKind::managed, -1};
    }
    return type == cuda::memory_type_device ? DeviceMemory{MemoryKind::device, ordinal}
                                            : DeviceMemory{};
  }

  void pin(void* memory, std::size_t bytes) override {
    const Current current(driver_, context_);
    const BesideCaptures beside(driver_);
    check(driver_.host_register(memory, bytes, cuda::register_portable | cuda::register_mapped),
          "cuMemHostRegister");
  }

  void unpin(void* memory) noexcept override {
    quietly([&] { driver_.host_unregister(memory); });
  }

  DeviceStream make_stream() override {
    const Current current(driver_, context_);
    const BesideCaptures beside(driver_);
    CudaStream stream = nullptr;
    check(driver_.stream_create(&stream, cuda::stream_non_blocking), "cuStreamCreate");
    return stream;
  }

  void destroy_stream(DeviceStream stream) noexcept override {
    quietly([&] { driver_.stream_destroy(stream_of(stream)); });
  }

  void synchronize(DeviceStream stream) override {
    const Current current(driver_, context_);
    const BesideCaptures beside(driver_);
    check(driver_.stream_synchronize(stream_of(stream)), "cuStreamSynchronize");
  }

  bool idle(DeviceStream stream) override {
    const Current current(driver_, context_);
    const BesideCaptures beside(driver_);
    return is_ready(driver_.stream_query(stream_of(stream)), "cuStreamQuery");
  }

  bool capturing(DeviceStream stream) override {
    const Current current(driver_, context_);
    Enumerator status = cuda::capture_none;
    const device::Result result = driver_.stream_capturing(stream_of(stream), &status);
    if (result == cuda::capture_implicit) {
      return true;  // what is called on the default stream would spoil another one's capture
    }
    check(result, "cuStreamIsCapturing");
    return status != cuda::capture_none;
  }

  DeviceEvent make_event() override {
    const Current current(driver_, context_);
    CudaEvent event = nullptr;
    // Events that measure time cost more, and nobody asks them.
    check(driver_.event_create(&event, cuda::event_without_timing), "cuEventCreate");
    return event;
  }

  void destroy_event(DeviceEvent event) noexcept override {
    quietly([&] { driver_.event_destroy(event_of(event)); });
  }

  void record(DeviceEvent event, DeviceStream stream) override {
    const Current current(driver_, context_);
    check(driver_.event_record(event_of(event), stream_of(stream)), "cuEventRecord");
  }

  void wait(DeviceStream stream, DeviceEvent event) override {
    const Current current(driver_, context_);
    check(driver_.stream_wait_event(stream_of(stream), event_of(event), 0), "cuStreamWaitEvent");
  }

  bool reached(DeviceEvent event) override {
    const Current current(driver_, context_);
    const BesideCaptures beside(driver_);
    return is_ready(driver_.event_query(event_of(event)), "cuEventQuery");
  }

  void copy(DeviceStream stream, void* to, const void* from, std::size_t bytes) override {
    if (bytes == 0) {
      return;  // an empty buffer may have no address
    }
    const Current current(driver_, context_);
    check(driver_.copy(address_of(to), address_of(from), bytes, stream_of(stream)),
          "cuMemcpyAsync");
  }

  void write_word(DeviceStream stream, std::uint32_t* word, std::uint32_t value) override {
    const Current current(driver_, context_);
    check(driver_.stream_write_word(stream_of(stream), address_of(word), value,
                                    cuda::write_with_barrier),
          "cuStreamWriteValue32");
  }

  void wait_word(DeviceStream stream, const std::uint32_t* word, std::uint32_t value) override {
    const Current current(driver_, context_);
    check(driver_.stream_wait_word(stream_of(stream), address_of(word), value,
                                   cuda::wait_until_reached),
          "cuStreamWaitValue32");
  }

  void notify(DeviceStream stream, void (*function)(void*), void* argument) override {
    const Current current(driver_, context_);
    check(driver_.host_function(stream_of(stream), function, argument), "cuLaunchHostFunc");
  }

 private:
  void check(device::Result result, const char* call) const {
    if (result != cuda::success) {
      try {
        driver_.check(result, call);
      } catch (const Error& error) {
        throw Error(error.code(), text(name_, ": ", error.what()));
      }
    }
  }

  bool is_ready(device::Result result, const char* call) const {
    if (result == cuda::not_ready) {
      return false;
    }
    check(result, call);
    return true;
  }

  /// What releases is not told of errors: as a process ends the driver may be gone already.
  template <class Function>
  void quietly(Function function) const noexcept {
    try {
      const Current current(driver_, context_);
      const BesideCaptures beside(driver_);
      function();
    } catch (const Error&) {
    }
  }

  const CudaDriver& driver_;
  const int index_;
  std::string name_;
  CudaContext context_ = nullptr;
};

int count_devices() {
  const CudaDriver* const driver = device::cuda_driver().driver;
  int count = 0;
  return driver != nullptr && driver->device_count(&count) == cuda::success ? count : 0;
}

int current_device() {
  const CudaDriver* const driver = device::cuda_driver().driver;
  int device = -1;
  return driver != nullptr && driver->context_device(&device) == cuda::success ? device : -1;
}

/// One object a device for the whole process: pages of words, which streams may wait for at any
/// later time, are kept by it.
std::shared_ptr<Device> open_cuda(int index) {
  static std::mutex mutex;
  static std::vector<std::shared_ptr<Device>> opened;
  const std::lock_guard lock(mutex);
  const auto at = static_cast<std::size_t>(index);
  if (opened.size() <= at) {
    opened.resize(at + 1);
  }
  if (!opened[at]) {
    opened[at] = std::make_shared<CudaDevice>(*device::cuda_driver().driver, index);
  }
  return opened[at];
}

}  // namespace

extern const DeviceKind cuda_device;
const DeviceKind cuda_device = {"cuda", count_devices, current_device, open_cuda};

}  // namespace sprat
