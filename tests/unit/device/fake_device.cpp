#include "tests/unit/device/fake_device.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

namespace sprat::device {

std::shared_ptr<Device> fake_device(int index) {
  static const int set = setenv("SPRAT_CUDA_DRIVER", SPRAT_FAKE_CUDA, 1);
  static_cast<void>(set);
  return open_device("cuda:" + std::to_string(index));
}

void* InstantDevice::allocate(std::size_t bytes) {
  return ::operator new(bytes, std::align_val_t{64});
}

void InstantDevice::free(void* memory) noexcept { ::operator delete(memory, std::align_val_t{64}); }

void InstantDevice::copy(DeviceStream, void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

void InstantDevice::write_word(DeviceStream, std::uint32_t* word, std::uint32_t value) {
  std::atomic_ref(*word).store(value, std::memory_order_release);
}

void Gate::open() { std::atomic_ref(*word()).store(1, std::memory_order_release); }

}  // namespace sprat::device
