// NCCL's interface of networks that reduce, version 11: our declaration of ncclCollNet_v11_t.
#pragma once

#include "plugins/nccl_net/abi/net_v11.hpp"

namespace sprat::nccl_net {

/// A piece of memory of a gathered or scattered buffer.
struct CollNetPieceV11 {
  void* registration;
  void* address;
  std::size_t bytes;
};

struct CollNetV11 {
  const char* name;
  Result (*init)(void** context, std::uint64_t communicator, Logger log);
  Result (*devices)(int* count);
  Result (*get_properties)(int device, NetPropertiesV11* properties);
  Result (*listen)(void* context, int device, void* handle, void** listener);
  Result (*connect)(void** handles, int ranks, int rank, void* listener, void** comm);
  Result (*reduce_support)(int data_type, int operation, int* supported);
  Result (*reg_mr)(void* comm, void* data, std::size_t bytes, int type, void** registration);
  Result (*reg_mr_dma_buf)(void* comm, void* data, std::size_t bytes, int type,
                           std::uint64_t offset, int descriptor, void** registration);
  Result (*dereg_mr)(void* comm, void* registration);
  Result (*iallreduce)(void* comm, void* source, void* target, std::size_t count, int data_type,
                       int operation, void* source_registration, void* target_registration,
                       void** request);
  Result (*iallgather)(void* comm, void* source, int parts, CollNetPieceV11* targets,
                       std::size_t bytes_a_rank, std::size_t window_offset,
                       std::size_t window_bytes, void* registration, void** request);
  Result (*ireducescatter)(void* comm, int parts, CollNetPieceV11* sources, void* target,
                           std::size_t bytes_a_rank, std::size_t window_offset,
                           std::size_t window_bytes, int data_type, int operation,
                           void* registration, void** request);
  Result (*iflush)(void* comm, void* data, int bytes, void* registration, void** request);
  Result (*test)(void* request, int* done, int* bytes);
  Result (*close_coll)(void* comm);
  Result (*close_listen)(void* listener);
  Result (*make_v_device)(int* device, NetVirtualDeviceV11* made_of);
  Result (*finalize)(void* context);
};

}  // namespace sprat::nccl_net
