// NCCL's profiler interface, version 5: our declaration of ncclProfiler_v5_t.
#pragma once

#include <sys/types.h>

#include "plugins/nccl_net/abi/types.hpp"

namespace sprat::nccl_net {

struct ProfiledGroupApiV5 {
  bool captured;
  int depth;
};

struct ProfiledCollApiV5 {
  const char* function;
  std::size_t count;
  const char* data_type;
  int root;
  void* stream;
  bool captured;
};

struct ProfiledP2pApiV5 {
  const char* function;
  std::size_t count;
  const char* data_type;
  void* stream;
  bool captured;
};

struct ProfiledLaunchV5 {
  void* stream;
};

struct ProfiledCollV5 {
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
  void* parent_group;
};

struct ProfiledP2pV5 {
  const char* function;
  void* data;
  const char* data_type;
  std::size_t count;
  int peer;
  std::uint8_t channels;
  void* parent_group;
};

struct ProfiledProxyOpV5 {
  pid_t process;
  std::uint8_t channel;
  int peer;
  int steps;
  int chunk_bytes;
  int sends;
};

struct ProfiledProxyStepV5 {
  int step;
};

struct ProfiledKernelV5 {
  std::uint8_t channel;
  std::uint64_t timer;
};

struct ProfiledPluginV5 {
  std::int64_t id;
  void* data;
};

struct ProfilerEventV5 {
  std::uint64_t type;
  void* parent;
  int rank;
  union {
    ProfiledGroupApiV5 group_api;
    ProfiledCollApiV5 coll_api;
    ProfiledP2pApiV5 p2p_api;
    ProfiledLaunchV5 kernel_launch;
    ProfiledCollV5 coll;
    ProfiledP2pV5 p2p;
    ProfiledProxyOpV5 proxy_op;
    ProfiledProxyStepV5 proxy_step;
    ProfiledKernelV5 kernel_ch;
    ProfiledPluginV5 net_plugin;
  };
};

/// Of states, which are not looked at.
union ProfilerStateV5 {
  std::size_t bytes;
  int appended;
  void* data;
  std::uint64_t timer;
};

struct ProfilerV5 {
  const char* name;
  Result (*init)(void** context, std::uint64_t hash, int* events, const char* communicator,
                 int nodes, int ranks, int rank, Logger log);
  Result (*start_event)(void* context, void** event, ProfilerEventV5* described);
  Result (*stop_event)(void* event);
  Result (*record_event_state)(void* event, int state, ProfilerStateV5* described);
  Result (*finalize)(void* context);
};

}  // namespace sprat::nccl_net
