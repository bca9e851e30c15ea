// The stand-in's devices, and arrays in their memory.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sprat/device.hpp"

namespace sprat::device {

/// The driver's stand-in instead of the driver; to be called before the first device is opened.
std::shared_ptr<Device> fake_device(int index = 0);

/// A stream that ends with its scope.
class TestStream {
 public:
  explicit TestStream(Device& device) : device_(device), stream_(device.make_stream()) {}
  ~TestStream() { device_.destroy_stream(stream_); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  operator DeviceStream() const { return stream_; }  // NOLINT: it stands for the handle
  void synchronize() { device_.synchronize(stream_); }

 private:
  Device& device_;
  DeviceStream stream_;
};

/// Bytes in a device's memory.
class DeviceBytes {
 public:
  DeviceBytes(Device& device, std::size_t bytes) : device_(device), bytes_(bytes) {
    data_ = static_cast<std::byte*>(device.allocate(bytes));
  }
  DeviceBytes(Device& device, DeviceStream stream, const std::vector<std::byte>& values)
      : DeviceBytes(device, values.size()) {
    device.copy(stream, data_, values.data(), values.size());
  }
  ~DeviceBytes() { device_.free(data_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  std::byte* data() const { return data_; }
  /// Behind what the stream holds.
  std::vector<std::byte> values(DeviceStream stream) const {
    std::vector<std::byte> values(bytes_);
    device_.copy(stream, values.data(), data_, bytes_);
    device_.synchronize(stream);
    return values;
  }

 private:
  Device& device_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A device of a caller's own, on the stand-in, whose allocations it counts: they are not the
/// lane's.
class CountingDevice final : public Device {
 public:
  explicit CountingDevice(std::shared_ptr<Device> on) : on_(std::move(on)) {}
  /// By operator new, of the calling thread, in verbs of any such device.
  static long& allocations() noexcept;

  const std::string& name() const noexcept override { return on_->name(); }
  int index() const noexcept override { return on_->index(); }
  void* allocate(std::size_t bytes) override { return on_->allocate(bytes); }
  void free(void* memory) noexcept override { on_->free(memory); }
  DeviceMemory memory_of(const void* pointer) override { return on_->memory_of(pointer); }
  void pin(void* memory, std::size_t bytes) override { on_->pin(memory, bytes); }
  void unpin(void* memory) noexcept override { on_->unpin(memory); }
  DeviceStream make_stream() override { return on_->make_stream(); }
  void destroy_stream(DeviceStream stream) noexcept override { on_->destroy_stream(stream); }
  void synchronize(DeviceStream stream) override { on_->synchronize(stream); }
  bool idle(DeviceStream stream) override { return on_->idle(stream); }
  bool capturing(DeviceStream stream) override { return on_->capturing(stream); }
  DeviceEvent make_event() override { return on_->make_event(); }
  void destroy_event(DeviceEvent event) noexcept override { on_->destroy_event(event); }
  bool reached(DeviceEvent event) override { return on_->reached(event); }
  void record(DeviceEvent event, DeviceStream stream) override;
  void wait(DeviceStream stream, DeviceEvent event) override;
  void copy(DeviceStream stream, void* to, const void* from, std::size_t bytes) override;
  void write_word(DeviceStream stream, std::uint32_t* word, std::uint32_t value) override;
  void wait_word(DeviceStream stream, const std::uint32_t* word, std::uint32_t value) override;
  void notify(DeviceStream stream, void (*function)(void*), void* argument) override;

 private:
  const std::shared_ptr<Device> on_;
};

/// Holds a stream until it is opened.
class Gate {
 public:
  explicit Gate(Device& device) : device_(device), memory_(4096) {
    device_.pin(memory_.data(), memory_.bytes());
  }
  ~Gate() {
    open();
    device_.unpin(memory_.data());
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void hold(DeviceStream stream) { device_.wait_word(stream, word(), 1); }
  void open();

 private:
  std::uint32_t* word() const { return static_cast<std::uint32_t*>(memory_.data()); }
  Device& device_;
  Memory memory_;
};

}  // namespace sprat::device
