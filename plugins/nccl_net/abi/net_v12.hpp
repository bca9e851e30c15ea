// NCCL's network interface, version 12: our declaration of ncclNet_v12_t.
#pragma once

#include "plugins/nccl_net/abi/types.hpp"

namespace sprat::nccl_net {

struct NetVirtualDeviceV12 {
  int count;
  int devices[8];
};

struct NetConfigV12 {
  int traffic_class;  ///< -1: none is asked for.
};

struct NetPropertiesV12 {
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
  NetVirtualDeviceV12 virtual_device;
  std::size_t most_p2p_bytes;
  std::size_t most_collective_bytes;
  int most_multi_requests;
  std::int16_t rail;
  std::int16_t plane;
};

struct NetPeersV12 {
  std::int32_t most_peers, least_peers, most_flows, least_flows;
};

struct NetAttributesV12 {
  NetPeersV12 send, receive;
  std::uint32_t operation, algorithm, protocol;
};

struct NetV12 {
  const char* name;
  Result (*init)(void** context, std::uint64_t communicator, NetConfigV12* config, Logger log,
                 ProfilerCallback profiler);
  Result (*devices)(int* count);
  Result (*get_properties)(int device, NetPropertiesV12* properties);
  Result (*listen)(void* context, int device, void* handle, void** listener);
  Result (*connect)(void* context, int device, void* handle, void** sender,
                    NetDeviceHandle** offload);
  Result (*accept)(void* listener, void** receiver, NetDeviceHandle** offload);
  Result (*reg_mr)(void* comm, void* data, std::size_t bytes, int type, void** registration);
  Result (*reg_mr_dma_buf)(void* comm, void* data, std::size_t bytes, int type,
                           std::uint64_t offset, int descriptor, void** registration);
  Result (*dereg_mr)(void* comm, void* registration);
  Result (*isend)(void* sender, void* data, std::size_t bytes, int tag, void* registration,
                  void* event, void** request);
  Result (*irecv)(void* receiver, int count, void** data, std::size_t* bytes, int* tags,
                  void** registrations, void** events, void** request);
  Result (*iflush)(void* receiver, int count, void** data, int* bytes, void** registrations,
                   void** request);
  Result (*test)(void* request, int* done, int* bytes);
  Result (*close_send)(void* sender);
  Result (*close_recv)(void* receiver);
  Result (*close_listen)(void* listener);
  Result (*get_device_mr)(void* comm, void* registration, void** on_device);
  Result (*irecv_consumed)(void* receiver, int count, void* request);
  Result (*make_v_device)(int* device, NetVirtualDeviceV12* made_of);
  Result (*finalize)(void* context);
  Result (*set_net_attr)(void* context, NetAttributesV12* attributes);
};

}  // namespace sprat::nccl_net
