// The types of devices whose tensors the backend takes.
#pragma once

#include <ATen/ATen.h>

#include <memory>

#include "sprat/device.hpp"

namespace sprat::pytorch {

/// Whether tensors of such devices are taken.
bool serves(at::DeviceType type);
/// From here on tensors of `type` are taken. `kind` lives as long as the process. Throws
/// c10::Error if the type is served already.
void add_device_kind(at::DeviceType type, const DeviceKind& kind);
/// The process's one of this device. Throws c10::ValueError if its type is not served, and Error
/// if it cannot be opened. Any thread.
std::shared_ptr<Device> open_device(at::Device device);

/// The calling thread's current stream of the device.
DeviceStream current_stream(at::Device device);
/// A stream that PyTorch did not make, as PyTorch's.
c10::Stream as_torch_stream(at::Device device, DeviceStream stream);

}  // namespace sprat::pytorch
