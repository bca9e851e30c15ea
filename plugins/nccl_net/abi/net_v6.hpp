// NCCL's network interface, version 6: our declaration of ncclNet_v6_t.
#pragma once

#include "plugins/nccl_net/abi/types.hpp"

namespace sprat::nccl_net {

struct NetPropertiesV6 {
  const char* name;
  const char* pci_path;
  std::uint64_t guid;
  int pointer_support;
  int speed;  ///< Mbit/s.
  int port;
  float latency;  ///< Microseconds.
  int most_communicators;
  int most_receives;
};

struct NetV6 {
  const char* name;
  Result (*init)(Logger log);
  Result (*devices)(int* count);
  Result (*get_properties)(int device, NetPropertiesV6* properties);
  Result (*listen)(int device, void* handle, void** listener);
  Result (*connect)(int device, void* handle, void** sender);
  Result (*accept)(void* listener, void** receiver);
  Result (*reg_mr)(void* comm, void* data, int bytes, int type, void** registration);
  Result (*reg_mr_dma_buf)(void* comm, void* data, std::size_t bytes, int type,
                           std::uint64_t offset, int descriptor, void** registration);
  Result (*dereg_mr)(void* comm, void* registration);
  Result (*isend)(void* sender, void* data, int bytes, int tag, void* registration, void** request);
  Result (*irecv)(void* receiver, int count, void** data, int* bytes, int* tags,
                  void** registrations, void** request);
  Result (*iflush)(void* receiver, int count, void** data, int* bytes, void** registrations,
                   void** request);
  Result (*test)(void* request, int* done, int* bytes);
  Result (*close_send)(void* sender);
  Result (*close_recv)(void* receiver);
  Result (*close_listen)(void* listener);
};

}  // namespace sprat::nccl_net
