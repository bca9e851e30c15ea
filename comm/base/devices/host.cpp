// The host as a device: its queue is the caller, so everything is done on return.
#include <cstdlib>
#include <cstring>
#include <new>

#include "comm/base/check.hpp"
#include "comm/base/device.hpp"

namespace sprat {
namespace {

constexpr auto alignment = std::align_val_t{64};

class HostDevice final : public Device {
 public:
  const std::string& name() const noexcept override { return name_; }

  void* allocate(std::size_t bytes) override {
    void* memory = ::operator new(bytes, alignment, std::nothrow);
    need(memory != nullptr, "the host has no ", bytes, " bytes of memory left");
    return memory;
  }

  void free(void* memory) noexcept override { ::operator delete(memory, alignment); }

  void copy(void* to, const void* from, std::size_t bytes) override {
    // memcpy() must not be given null pointers, which an empty copy may have.
    if (bytes > 0) {
      std::memcpy(to, from, bytes);
    }
  }

  void synchronize() override {}

 private:
  std::string name_ = "host";
};

}  // namespace

extern const DeviceKind host_device;
const DeviceKind host_device = {
    "host",
    [] { return 1; },
    [](int) -> std::unique_ptr<Device> { return std::make_unique<HostDevice>(); },
};

}  // namespace sprat
