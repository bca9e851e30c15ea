// NCCL's network interface, version 9: our declaration of ncclNet_v9_t.
#pragma once

#include "plugins/nccl_net/abi/types.hpp"

namespace sprat::nccl_net {

struct NetVirtualDeviceV9 {
  int count;
  int devices[4];
};

struct NetPropertiesV9 {
  const char* name;
  const char* pci_path;
  std::uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int force_flush;
  int speed;  ///< Mbit/s.
  int port;
  float latency;  ///< Microseconds.
  int most_communicators;
  int most_receives;
  NetDeviceType device_type;
  int device_version;
  NetVirtualDeviceV9 virtual_device;
  std::size_t most_p2p_bytes;
  std::size_t most_collective_bytes;
};

struct NetV9 {
  const char* name;
  Result (*init)(Logger log);
  Result (*devices)(int* count);
  Result (*get_properties)(int device, NetPropertiesV9* properties);
  Result (*listen)(int device, void* handle, void** listener);
  Result (*connect)(int device, void* handle, void** sender, NetDeviceHandle** offload);
  Result (*accept)(void* listener, void** receiver, NetDeviceHandle** offload);
  Result (*reg_mr)(void* comm, void* data, std::size_t bytes, int type, void** registration);
  Result (*reg_mr_dma_buf)(void* comm, void* data, std::size_t bytes, int type,
                           std::uint64_t offset, int descriptor, void** registration);
  Result (*dereg_mr)(void* comm, void* registration);
  Result (*isend)(void* sender, void* data, std::size_t bytes, int tag, void* registration,
                  void** request);
  Result (*irecv)(void* receiver, int count, void** data, std::size_t* bytes, int* tags,
                  void** registrations, void** request);
  Result (*iflush)(void* receiver, int count, void** data, int* bytes, void** registrations,
                   void** request);
  Result (*test)(void* request, int* done, int* bytes);
  Result (*close_send)(void* sender);
  Result (*close_recv)(void* receiver);
  Result (*close_listen)(void* listener);
  Result (*get_device_mr)(void* comm, void* registration, void** on_device);
  Result (*irecv_consumed)(void* receiver, int count, void* request);
  Result (*make_v_device)(int* device, NetVirtualDeviceV9* made_of);
};

}  // namespace sprat::nccl_net
