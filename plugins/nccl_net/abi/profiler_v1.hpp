// NCCL's profiler interface, version 1: our declaration of ncclProfiler_v1_t.
#pragma once

#include <sys/types.h>

#include "plugins/nccl_net/abi/types.hpp"

namespace sprat::nccl_net {

struct ProfiledCollV1 {
  const char* communicator;
  std::uint64_t communicator_hash;
  std::uint64_t sequence;
  std::uint8_t function;
  const void* source;
  void* target;
  std::size_t count;
  int root;
  std::uint8_t data_type;
  std::uint32_t operation;
  std::size_t traffic_bytes;
  std::uint8_t channels;
  std::uint8_t warps;
  std::uint8_t algorithm;
  std::uint8_t protocol;
  int is_coll_net;
  int is_nvls;
};

struct ProfiledP2pV1 {
  const char* communicator;
  std::uint64_t communicator_hash;
  std::uint8_t function;
  void* data;
  std::uint8_t data_type;
  std::size_t count;
  int peer;
};

struct ProfiledProxyOpV1 {
  pid_t process;
  std::uint8_t channel;
  int peer;
  int steps;
  int chunk_bytes;
  int sends;
};

struct ProfiledProxyStepV1 {
  int step;
};

struct ProfilerEventV1 {
  std::uint8_t type;
  void* parent;
  int rank;
  union {
    ProfiledCollV1 coll;
    ProfiledP2pV1 p2p;
    ProfiledProxyOpV1 proxy_op;
    ProfiledProxyStepV1 proxy_step;
  };
};

struct ProfilerStepsV1 {
  std::size_t bytes;
  int steps;
};

/// Of states, which are not looked at.
union ProfilerStateV1 {
  ProfilerStepsV1 proxy_op;
  int appended;
};

struct ProfilerV1 {
  const char* name;
  Result (*init)(void** context, int* events);
  Result (*start_event)(void* context, void** event, ProfilerEventV1* described);
  Result (*stop_event)(void* event);
  Result (*record_event_state)(void* event, int state, ProfilerStateV1* described);
  Result (*finalize)(void* context);
};

}  // namespace sprat::nccl_net
