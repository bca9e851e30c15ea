// CUDA's devices by their numbers.
#include "plugins/nccl_abi/devices.hpp"

#include <array>
#include <string>
#include <string_view>

#include "device/cuda_driver.hpp"
#include "plugins/nccl_abi/errors.hpp"

namespace sprat::nccl {
namespace {

/// Null where Sprat was built without the kind.
const DeviceKind* cuda() {
  for (const DeviceKind* kind : all_device_kinds()) {
    if (std::string_view(kind->name) == "cuda") {
      return kind;
    }
  }
  return nullptr;
}

const device::CudaDriver& driver() {
  const device::FoundCudaDriver& found = device::cuda_driver();
  if (found.driver == nullptr) {
    refuse(ncclUnhandledCudaError, found.missing);
  }
  return *found.driver;
}

/// 0 without a driver.
int device_count() { return cuda() == nullptr ? 0 : cuda()->count(); }

}  // namespace

int current_device() {
  const int current = device_count() == 0 ? 0 : cuda()->current();
  return current < 0 ? 0 : current;  // a thread that has none yet will have the first
}

void check_device(int device) {
  const int count = device_count();
  if (device < 0 || (count > 0 && device >= count)) {
    refuse(ncclInvalidArgument, "device " + std::to_string(device) + " is none; there are " +
                                    std::to_string(count) + " here");
  }
}

std::shared_ptr<Device> device_at(int device) {
  if (device_count() == 0) {
    return nullptr;
  }
  try {
    return open_device("cuda:" + std::to_string(device));
  } catch (const Error& error) {
    refuse(ncclUnhandledCudaError, error.what());
  }
}

std::string bus_address(int device) {
  int handle = 0;
  driver().check(driver().device_get(&handle, device), "cuDeviceGet");
  std::array<char, 16> address{};
  driver().check(driver().device_bus(address.data(), address.size(), handle),
                 "cuDeviceGetPCIBusId");
  return address.data();
}

// The primary context is what CUDA's runtime goes by. It is held for ever, as lanes do.
CurrentDevice::CurrentDevice(int device) {
  int handle = 0;
  driver().check(driver().device_get(&handle, device), "cuDeviceGet");
  device::CudaContext context = nullptr;
  driver().check(driver().primary_retain(&context, handle), "cuDevicePrimaryCtxRetain");
  driver().check(driver().context_push(context), "cuCtxPushCurrent");
}

CurrentDevice::~CurrentDevice() {
  device::CudaContext popped = nullptr;
  driver().context_pop(&popped);
}

}  // namespace sprat::nccl
