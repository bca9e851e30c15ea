#include "plugins/torch/native/devices/registry.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <mutex>
#include <string>

namespace sprat::pytorch {
namespace {

/// Never destroyed: tensors may be used while the process ends.
class Registry final {
 public:
  static Registry& of_process() {
    static Registry* registry = new Registry;
    return *registry;
  }

  bool serves(at::DeviceType type) {
    const std::lock_guard lock(mutex_);
    return kinds_.contains(type);
  }

  void add(at::DeviceType type, const DeviceKind& kind) {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(kinds_.emplace(type, &kind).second, "sprat takes tensors of ", type,
                " devices already");
  }

  std::shared_ptr<Device> open(at::Device device) {
    // Opening stays under the lock: it happens once a device, and two of one device would pin
    // memory twice.
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Device>& known = open_[{device.type(), device.index()}];
    if (!known) {
      const auto kind = kinds_.find(device.type());
      TORCH_CHECK_VALUE(kind != kinds_.end(), "sprat takes CPU", listed(),
                        " tensors, not those of ", device, "; move them, as by .cpu()");
      known = kind->second->open(device.index());
    }
    return known;
  }

 private:
  Registry() {
#if SPRAT_TORCH_CUDA
    for (const DeviceKind* kind : all_device_kinds()) {
      if (std::string(kind->name) == "cuda") {
        kinds_.emplace(at::kCUDA, kind);
      }
    }
#endif
  }

  std::string listed() const {
    std::string names;
    for (const auto& [type, kind] : kinds_) {
      names += " and " + c10::DeviceTypeName(type, /*lower_case=*/true);
    }
    return names;
  }

  std::mutex mutex_;  ///< Guards the rest.
  std::map<at::DeviceType, const DeviceKind*> kinds_;
  std::map<std::pair<at::DeviceType, c10::DeviceIndex>, std::shared_ptr<Device>> open_;
};

}  // namespace

bool serves(at::DeviceType type) { return Registry::of_process().serves(type); }

void add_device_kind(at::DeviceType type, const DeviceKind& kind) {
  Registry::of_process().add(type, kind);
}

std::shared_ptr<Device> open_device(at::Device device) {
  return Registry::of_process().open(device);
}

DeviceStream current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
}

// CUDA's stream ids are even pointers where the stream is somebody else's, and the stand-in of the
// tests does the same (c10/cuda/CUDAStream.cpp: "StreamIdType::EXT").
c10::Stream as_torch_stream(at::Device device, DeviceStream stream) {
  return c10::Stream(c10::Stream::UNSAFE, device, reinterpret_cast<c10::StreamId>(stream));
}

}  // namespace sprat::pytorch
