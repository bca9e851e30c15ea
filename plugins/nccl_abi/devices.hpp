// Which device a communicator's ranks have, where there is a driver at all.
#pragma once

#include <memory>

#include "sprat/device.hpp"

namespace sprat::nccl {

/// The calling thread's; 0 without a driver.
int current_device();
/// Throws ncclInvalidArgument if there is a driver, and no such device. Several ranks may have the
/// same one.
void check_device(int device);
/// Null without a driver. Throws ncclUnhandledCudaError if the device cannot be used.
std::shared_ptr<Device> device_at(int device);

}  // namespace sprat::nccl
