// NCCL's profiler interface, version 3: our declaration of ncclProfiler_v3_t.
#pragma once

#include <sys/types.h>

#include "plugins/nccl_net/abi/types.hpp"

namespace sprat::nccl_net {

struct ProfiledCollV3 {
  const char* communicator;
  std::uint64_t communicator_hash;
  std::uint64_t sequence;
  const char* function;
  const void* source;
  void* target;
  std::size_t count;
  int root;
  const char* data_type;
  std::uint8_t channels;
  std::uint8_t warps;
  const char* algorithm;
  const char* protocol;
};

struct ProfiledP2pV3 {
  const char* communicator;
  std::uint64_t communicator_hash;
  const char* function;
  void* data;
  const char* data_type;
  std::size_t count;
  int peer;
};

struct ProfiledProxyOpV3 {
  pid_t process;
  std::uint8_t channel;
  int peer;
  int steps;
  int chunk_bytes;
  int sends;
};

struct ProfiledProxyStepV3 {
  int step;
};

struct ProfiledKernelV3 {
  std::uint8_t channel;
};

struct ProfiledPluginV3 {
  std::int64_t id;
  void* data;
};

struct ProfilerEventV3 {
  std::uint8_t type;
  void* parent;
  int rank;
  union {
    ProfiledCollV3 coll;
    ProfiledP2pV3 p2p;
    ProfiledProxyOpV3 proxy_op;
    ProfiledProxyStepV3 proxy_step;
    ProfiledKernelV3 kernel_ch;
    ProfiledPluginV3 net_plugin;
  };
};

struct ProfilerStepsV3 {
  std::size_t bytes;
  int steps;
};

/// Of states, which are not looked at.
union ProfilerStateV3 {
  ProfilerStepsV3 proxy_op;
  int appended;
};

struct ProfilerV3 {
  const char* name;
  Result (*init)(void** context, int* events);
  Result (*start_event)(void* context, void** event, ProfilerEventV3* described);
  Result (*stop_event)(void* event);
  Result (*record_event_state)(void* event, int state, ProfilerStateV3* described);
  Result (*finalize)(void* context);
};

}  // namespace sprat::nccl_net
