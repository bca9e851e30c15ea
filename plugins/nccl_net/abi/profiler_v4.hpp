// NCCL's profiler interface, version 4: our declaration of ncclProfiler_v4_t.
#pragma once

#include <sys/types.h>

#include "plugins/nccl_net/abi/types.hpp"

namespace sprat::nccl_net {

struct ProfiledCollV4 {
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

struct ProfiledP2pV4 {
  const char* function;
  void* data;
  const char* data_type;
  std::size_t count;
  int peer;
  std::uint8_t channels;
};

struct ProfiledProxyOpV4 {
  pid_t process;
  std::uint8_t channel;
  int peer;
  int steps;
  int chunk_bytes;
  int sends;
};

struct ProfiledProxyStepV4 {
  int step;
};

struct ProfiledKernelV4 {
  std::uint8_t channel;
  std::uint64_t timer;
};

struct ProfiledPluginV4 {
  std::int64_t id;
  void* data;
};

struct ProfilerEventV4 {
  std::uint8_t type;
  void* parent;
  int rank;
  union {
    ProfiledCollV4 coll;
    ProfiledP2pV4 p2p;
    ProfiledProxyOpV4 proxy_op;
    ProfiledProxyStepV4 proxy_step;
    ProfiledKernelV4 kernel_ch;
    ProfiledPluginV4 net_plugin;
  };
};

/// Of states, which are not looked at.
union ProfilerStateV4 {
  std::size_t bytes;
  int appended;
  void* data;
  std::uint64_t timer;
};

struct ProfilerV4 {
  const char* name;
  Result (*init)(void** context, int* events, const char* communicator, std::uint64_t hash,
                 int nodes, int ranks, int rank, Logger log);
  Result (*start_event)(void* context, void** event, ProfilerEventV4* described);
  Result (*stop_event)(void* event);
  Result (*record_event_state)(void* event, int state, ProfilerStateV4* described);
  Result (*finalize)(void* context);
};

}  // namespace sprat::nccl_net
