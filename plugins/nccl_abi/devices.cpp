// CUDA's devices by their numbers.
#include "plugins/nccl_abi/devices.hpp"

#include <string>
#include <string_view>

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

}  // namespace sprat::nccl
