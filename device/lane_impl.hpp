// What lies behind a DeviceLane.
#pragma once

#include <memory>
#include <vector>

#include "device/lane_core.hpp"
#include "sprat/device.hpp"

namespace sprat {

class DeviceLane::Impl {
 public:
  std::shared_ptr<device::LaneCore> core;  ///< Shared with handles, which may outlive the lane.
};

namespace device {

/// The input that begins where the output does, or null. Throws Error{invalid_argument} if the
/// output is longer.
const Operand* in_place_with(const std::vector<Operand>& inputs, const Operand& output);

}  // namespace device
}  // namespace sprat
