// The stand-in's devices, and arrays in their memory.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
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

/// A device of a caller's own, whose memory is the host's and whose streams are empty at all times:
/// what is queued is done at once. It allocates nothing of its own. Streams that wait for words do
/// not wait: results are there when synchronize() of their work says so.
class InstantDevice final : public Device {
 public:
  const std::string& name() const noexcept override { return name_; }
  int index() const noexcept override { return 0; }
  void* allocate(std::size_t bytes) override;
  void free(void* memory) noexcept override;
  DeviceMemory memory_of(const void*) override { return {MemoryKind::device, 0}; }
  void pin(void*, std::size_t) override {}
  void unpin(void*) noexcept override {}
  DeviceStream make_stream() override { return this; }
  void destroy_stream(DeviceStream) noexcept override {}
  void synchronize(DeviceStream) override {}
  bool idle(DeviceStream) override { return true; }
  bool capturing(DeviceStream) override { return false; }
  DeviceEvent make_event() override { return this; }
  void destroy_event(DeviceEvent) noexcept override {}
  void record(DeviceEvent, DeviceStream) override {}
  void wait(DeviceStream, DeviceEvent) override {}
  bool reached(DeviceEvent) override { return true; }
  void copy(DeviceStream, void* to, const void* from, std::size_t bytes) override;
  void write_word(DeviceStream, std::uint32_t* word, std::uint32_t value) override;
  void wait_word(DeviceStream, const std::uint32_t*, std::uint32_t) override {}
  void notify(DeviceStream, void (*function)(void*), void* argument) override {
    function(argument);
  }

 private:
  std::string name_ = "instant";
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
