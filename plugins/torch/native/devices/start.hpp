// A call on tensors of a device, from its arguments to a lane.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "plugins/torch/native/calls.hpp"
#include "plugins/torch/native/devices/stream_work.hpp"

namespace sprat::pytorch {

/// Makes a Call of tensors: of those given, or of host tensors that stand for a device's.
using MakeCall = std::function<Call(const Tensors& inputs, const Tensors& outputs)>;

/// The device that all tensors of a call are on; nothing where they are the CPU's, or there are
/// none. Throws c10::ValueError if they differ.
std::optional<at::Device> device_of(const Tensors& inputs, const Tensors& outputs);

/// One call on tensors of a device.
struct DeviceCallParts {
  Tensors inputs, outputs;  ///< Contiguous.
  MakeCall make;
  Call call;  ///< Of the device's tensors: what is told of it, and how a lane does it by itself.
  Observed observed;
};

/// Checks arguments, and makes all but `observed`. Nothing is read or written. Throws
/// c10::ValueError for tensors that are not dense.
DeviceCallParts checked_parts(const Tensors& inputs, const Tensors& outputs, MakeCall make);

/// Puts calls into the lane as one operation. Blocks nobody.
c10::intrusive_ptr<StreamWork> start_on_lane(OpenLane& lane, std::vector<DeviceCallParts> parts,
                                             std::shared_ptr<Observer> observer);

}  // namespace sprat::pytorch
