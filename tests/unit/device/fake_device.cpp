#include "tests/unit/device/fake_device.hpp"

#include <atomic>
#include <cstdlib>
#include <string>

#include "tests/unit/device/allocations.hpp"

namespace sprat::device {

std::shared_ptr<Device> fake_device(int index) {
  static const int set = setenv("SPRAT_CUDA_DRIVER", SPRAT_FAKE_CUDA, 1);
  static_cast<void>(set);
  return open_device("cuda:" + std::to_string(index));
}

namespace {

/// What `call` allocates is counted apart.
template <class Call>
void counted(const Call& call) {
  const long before = allocations_here();
  call();
  CountingDevice::allocations() += allocations_here() - before;
}

}  // namespace

long& CountingDevice::allocations() noexcept {
  thread_local long count = 0;
  return count;
}

void CountingDevice::record(DeviceEvent event, DeviceStream stream) {
  counted([&] { on_->record(event, stream); });
}
void CountingDevice::wait(DeviceStream stream, DeviceEvent event) {
  counted([&] { on_->wait(stream, event); });
}
void CountingDevice::copy(DeviceStream stream, void* to, const void* from, std::size_t bytes) {
  counted([&] { on_->copy(stream, to, from, bytes); });
}
void CountingDevice::write_word(DeviceStream stream, std::uint32_t* word, std::uint32_t value) {
  counted([&] { on_->write_word(stream, word, value); });
}
void CountingDevice::wait_word(DeviceStream stream, const std::uint32_t* word,
                               std::uint32_t value) {
  counted([&] { on_->wait_word(stream, word, value); });
}
void CountingDevice::notify(DeviceStream stream, void (*function)(void*), void* argument) {
  counted([&] { on_->notify(stream, function, argument); });
}

void Gate::open() { std::atomic_ref(*word()).store(1, std::memory_order_release); }

}  // namespace sprat::device
