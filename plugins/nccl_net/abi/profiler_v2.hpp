// NCCL's profiler interface, version 2: our declaration of ncclProfiler_v2_t.
#pragma once

#include <sys/types.h>

#include "plugins/nccl_net/abi/types.hpp"

namespace sprat::nccl_net {

struct ProfiledCollV2 {
  const char* communicator;
  std::uint64_t communicator_hash;
  std::uint64_t sequence;
  const char* function;
  const void* source;
  void* target;
  std::size_t count;
  int root;
  const char* data_type;
  std::size_t traffic_bytes;
  std::uint8_t channels;
  std::uint8_t warps;
  const char* algorithm;
  const char* protocol;
};

struct ProfiledP2pV2 {
  const char* communicator;
  std::uint64_t communicator_hash;
  const char* function;
  void* data;
  const char* data_type;
  std::size_t count;
  int peer;
};

struct ProfiledProxyOpV2 {
  pid_t process;
  std::uint8_t channel;
  int peer;
  int steps;
  int chunk_bytes;
  int sends;
};

struct ProfiledProxyStepV2 {
  int step;
};

struct ProfilerEventV2 {
  std::uint8_t type;
  void* parent;
  int rank;
  union {
    ProfiledCollV2 coll;
    ProfiledP2pV2 p2p;
    ProfiledProxyOpV2 proxy_op;
    ProfiledProxyStepV2 proxy_step;
  };
};

struct ProfilerStepsV2 {
  std::size_t bytes;
  int steps;
};

/// Of states, which are not looked at.
union ProfilerStateV2 {
  ProfilerStepsV2 proxy_op;
  int appended;
};

struct ProfilerV2 {
  const char* name;
  Result (*init)(void** context, int* events);
  Result (*start_event)(void* context, void** event, ProfilerEventV2* described);
  Result (*stop_event)(void* event);
  Result (*record_event_state)(void* event, int state, ProfilerStateV2* described);
  Result (*finalize)(void* context);
};

}  // namespace sprat::nccl_net
