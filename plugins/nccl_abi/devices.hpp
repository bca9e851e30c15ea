// Which device a communicator's ranks have, where there is a driver at all.
#pragma once

#include <memory>
#include <string>

#include "sprat/device.hpp"

namespace sprat::nccl {

/// The calling thread's; 0 without a driver.
int current_device();
/// Throws ncclInvalidArgument if there is a driver, and no such device. Several ranks may have the
/// same one.
void check_device(int device);
/// Null without a driver. Throws ncclUnhandledCudaError if the device cannot be used.
std::shared_ptr<Device> device_at(int device);

/// Where a device is on its host, "0000:4f:00.0": the same for all processes, whatever number they
/// know it by. Throws if there is no driver.
std::string bus_address(int device);
/// Makes a device the calling thread's while it lives, as cudaSetDevice() does. Throws likewise.
class CurrentDevice final {
 public:
  explicit CurrentDevice(int device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
};

}  // namespace sprat::nccl
