// Operations on a device's tensors, by way of host memory.
#pragma once

#include <functional>
#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "plugins/torch/native/calls.hpp"

namespace sprat::pytorch {

/// One operation: what comes in, what goes out, and how it is started on the host tensors that
/// stand for them. `start` returns once the operation is under way; it is called in the order of
/// run().
struct DeviceOperation {
  Tensors inputs, outputs;
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* title = "";
  int rank = 0;
  std::function<c10::intrusive_ptr<Work>(const Tensors& inputs, const Tensors& outputs)> start;
};

/// Copies to the host behind what the caller's stream has queued, starts the operation, and copies
/// back. Any thread; operations start in the order of calls.
class DeviceLane {
 public:
  virtual ~DeviceLane() = default;
  virtual c10::intrusive_ptr<c10d::Work> run(DeviceOperation operation) = 0;
  /// Blocks until all that was run has ended.
  virtual void settle() = 0;
};

/// Whether this build serves such a device.
bool serves(at::DeviceType type);
/// Throws c10::ValueError if this build serves no such device.
std::unique_ptr<DeviceLane> open_device_lane(at::DeviceType type);

}  // namespace sprat::pytorch
