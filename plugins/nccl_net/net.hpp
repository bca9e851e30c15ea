// NCCL's network interface in its neutral form: what all versions of it are translated to. Any
// thread. `context` may be null: older versions of the interface know none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/endpoint/devices.hpp"
#include "comm/endpoint/invitation.hpp"
#include "comm/endpoint/listener.hpp"
#include "plugins/nccl_net/abi/types.hpp"

namespace sprat::nccl_net::net {

inline constexpr const char* name = "Sprat";

/// One device. Strings live as long as the library.
struct Properties {
  const char* name = nullptr;
  const char* pci_path = nullptr;  ///< Null: it hangs below no PCI device.
  std::uint64_t guid = 0;
  int speed = 0;  ///< Mbit/s.
};

/// Fails if there is no device, so that NCCL goes on to its own networks.
Result init(void** context, Logger logger);
Result devices(int* count);
Result properties(int device, Properties* properties);
Result listen(void* context, int device, void* handle, void** listener);
/// Null in `sender`, or `receiver`: not yet, call again with the same handle.
Result connect(void* context, int device, void* handle, void** sender);
Result accept(void* listener, void** receiver);
Result reg_mr(int type, void** registration);
Result isend(void* sender, const void* data, std::size_t bytes, int tag, void** request);
Result irecv(void* receiver, int count, void** data, const std::size_t* bytes, const int* tags,
             void** request);
Result test(void* request, int* done, int* bytes);
Result close_comm(void* comm);
Result close_listen(void* listener);
Result finalize(void* context);

// For what else is built on the same handles. They throw.
const comm::endpoint::Device& first_device();
comm::endpoint::Listener& listener_at(void* listener);
comm::endpoint::Invitation invitation_in(const void* handle);

}  // namespace sprat::nccl_net::net
