// c10's guard of the stand-in device, and what PyTorch asks of an accelerator beside.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "tests/gpu/stand_in/allocator.hpp"
#include "tests/gpu/stand_in/streams.hpp"

namespace stand_in {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;

int index_of(Device device) { return device.has_index() ? device.index() : current_device(); }

Device device_at(int index) {
  return Device(DeviceType::PrivateUse1, static_cast<DeviceIndex>(index));
}

// 0 is the default stream; every other is its object, as CUDA's ids of others' streams are.
c10::Stream as_torch(Stream* stream) {
  const bool first = stream == default_stream(stream->device());
  return c10::Stream(c10::Stream::UNSAFE, device_at(stream->device()),
                     first ? 0 : reinterpret_cast<c10::StreamId>(stream));
}

Stream* as_ours(const c10::Stream& stream) {
  return stream.id() == 0 ? default_stream(index_of(stream.device()))
                          : reinterpret_cast<Stream*>(stream.id());
}

struct TorchEvent {
  std::shared_ptr<Event> event = std::make_shared<Event>();
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return DeviceType::PrivateUse1; }
  Device exchangeDevice(Device device) const override {
    const Device before = getDevice();
    setDevice(device);
    return before;
  }
  Device getDevice() const override { return device_at(current_device()); }
  void setDevice(Device device) const override { set_current_device(index_of(device)); }
  void uncheckedSetDevice(Device device) const noexcept override {
    set_current_device(index_of(device));
  }
  c10::Stream getStream(Device device) const override {
    return as_torch(current_stream(index_of(device)));
  }
  c10::Stream getDefaultStream(Device device) const override {
    return as_torch(default_stream(index_of(device)));
  }
  c10::Stream getStreamFromGlobalPool(Device device, bool) const override {
    return as_torch(pool_stream(index_of(device)));
  }
  c10::Stream getNewStream(Device device, int) const override {
    return as_torch(make_stream(index_of(device)));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    Stream* ours = as_ours(stream);
    const c10::Stream before = as_torch(current_stream(ours->device()));
    set_current_stream(ours);
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return as_ours(stream); }
  DeviceIndex deviceCount() const noexcept override { return devices; }
  bool queryStream(const c10::Stream& stream) const override { return as_ours(stream)->idle(); }
  void synchronizeStream(const c10::Stream& stream) const override {
    as_ours(stream)->synchronize();
  }
  void synchronizeDevice(const DeviceIndex device) const override { synchronize_device(device); }

  void destroyEvent(void* event, const DeviceIndex) const noexcept override {
    delete static_cast<TorchEvent*>(event);
  }
  void record(void** event, const c10::Stream& stream, const DeviceIndex,
              const c10::EventFlag) const override {
    if (*event == nullptr) {
      *event = new TorchEvent;
    }
    const auto mark = static_cast<TorchEvent*>(*event)->event;
    const std::uint64_t version = mark->record();
    as_ours(stream)->queue("event", [mark, version] { mark->reach(version); });
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) {
      const auto mark = static_cast<TorchEvent*>(event)->event;
      const std::uint64_t version = mark->newest();
      as_ours(stream)->queue("wait", [mark, version] { mark->wait(version); });
    }
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || is_reached(*static_cast<TorchEvent*>(event));
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) {
      count_host_wait();
      const auto mark = static_cast<TorchEvent*>(event)->event;
      mark->wait(mark->newest());
    }
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    record_stream(data.get(), as_ours(stream));
  }

 private:
  static bool is_reached(const TorchEvent& event) {
    return event.event->reached(event.event->newest());
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return devices; }
  DeviceIndex getCurrentDevice() const override {
    return static_cast<DeviceIndex>(current_device());
  }
  void setCurrentDevice(DeviceIndex device) const override { set_current_device(device); }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    const DeviceIndex before = getCurrentDevice();
    set_current_device(device);
    return before;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override {
    return exchangeDevice(device);
  }
  // The part that stays is copied in the order of the current stream, as the old memory is freed.
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    c10::DataPtr memory = allocator()->allocate(bytes);
    if (const std::size_t kept = std::min(bytes, storage.nbytes()); kept > 0) {
      allocator()->copy_data(memory.get(), storage.data(), kept);
    }
    const c10::DataPtr before = storage.unsafeGetStorageImpl()->set_data_ptr(std::move(memory));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
};

[[maybe_unused]] const bool registered = [] {
  c10::SetAllocator(DeviceType::PrivateUse1, allocator());
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace
}  // namespace stand_in
