// What NCCL is told of a device, in the struct of any version.
#pragma once

#include <cstdint>

#include "plugins/nccl_net/abi/types.hpp"
#include "plugins/nccl_net/net.hpp"
#include "plugins/nccl_net/net_comm.hpp"

namespace sprat::nccl_net {

/// Undefined identifiers of a virtual device's rail and plane.
inline constexpr std::int16_t no_rail = -1;
/// As many as there are descriptors for, which only the kernel knows.
inline constexpr int most_communicators = 65'536;

template <class Properties>
Result get_properties(int device, Properties* out) {
  net::Properties one;
  if (const Result result = net::properties(device, &one); result != Result::success) {
    return result;
  }
  *out = {};
  out->name = one.name;
  out->pci_path = one.pci_path;
  out->guid = one.guid;
  out->pointer_support = pointer_host;
  out->speed = one.speed;
  out->most_communicators = most_communicators;
  out->most_receives = most_receives;
  if constexpr (requires { out->device_type; }) {
    out->device_type = NetDeviceType::host;
  }
  if constexpr (requires { out->virtual_device; }) {
    out->virtual_device.count = 1;
    out->virtual_device.devices[0] = device;
    out->most_p2p_bytes = most_bytes;
    out->most_collective_bytes = most_bytes;
  }
  if constexpr (requires { out->most_multi_requests; }) {
    out->most_multi_requests = 1;
  }
  if constexpr (requires { out->rail; }) {
    out->rail = no_rail;
    out->plane = no_rail;
  }
  return Result::success;
}

}  // namespace sprat::nccl_net
