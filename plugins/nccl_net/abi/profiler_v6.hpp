// NCCL's profiler interface, version 6: our declaration of ncclProfiler_v6_t.
#pragma once

#include <sys/types.h>

#include "plugins/nccl_net/abi/types.hpp"

namespace sprat::nccl_net {

struct ProfiledGroupApiV6 {
  bool captured;
  int depth;
};

struct ProfiledCollApiV6 {
  const char* function;
  std::size_t count;
  const char* data_type;
  int root;
  void* stream;
  bool captured;
};

struct ProfiledP2pApiV6 {
  const char* function;
  std::size_t count;
  const char* data_type;
  void* stream;
  bool captured;
};

struct ProfiledLaunchV6 {
  void* stream;
};

struct ProfiledCollV6 {
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

struct ProfiledP2pV6 {
  const char* function;
  void* data;
  const char* data_type;
  std::size_t count;
  int peer;
  std::uint8_t channels;
  void* parent_group;
};

struct ProfiledProxyOpV6 {
  pid_t process;
  std::uint8_t channel;
  int peer;
  int steps;
  int chunk_bytes;
  int sends;
};

struct ProfiledProxyStepV6 {
  int step;
};

struct ProfiledKernelV6 {
  std::uint8_t channel;
  std::uint64_t timer;
};

struct ProfiledPluginV6 {
  std::int64_t id;
  void* data;
};

struct ProfiledCeCollV6 {
  std::uint64_t sequence;
  const char* function;
  const void* source;
  void* target;
  std::size_t count;
  int root;
  const char* data_type;
  const char* strategy;
  bool syncs_inside;
  std::uint32_t batch;
  std::uint32_t batches;
  std::uint32_t ce_sequence;
  void* stream;
};

struct ProfiledCeSyncV6 {
  bool complete;
  int ranks;
};

struct ProfiledCeBatchV6 {
  int operations;
  std::size_t bytes;
  bool syncs_inside;
};

struct ProfilerEventV6 {
  std::uint64_t type;
  void* parent;
  int rank;
  union {
    ProfiledGroupApiV6 group_api;
    ProfiledCollApiV6 coll_api;
    ProfiledP2pApiV6 p2p_api;
    ProfiledLaunchV6 kernel_launch;
    ProfiledCollV6 coll;
    ProfiledP2pV6 p2p;
    ProfiledProxyOpV6 proxy_op;
    ProfiledProxyStepV6 proxy_step;
    ProfiledKernelV6 kernel_ch;
    ProfiledPluginV6 net_plugin;
    ProfiledCeCollV6 ce_coll;
    ProfiledCeSyncV6 ce_coll_sync;
    ProfiledCeBatchV6 ce_coll_batch;
  };
};

/// Of states, which are not looked at.
union ProfilerStateV6 {
  std::size_t bytes;
  int appended;
  void* data;
  std::uint64_t timer;
};

struct ProfilerV6 {
  const char* name;
  Result (*init)(void** context, std::uint64_t hash, int* events, const char* communicator,
                 int nodes, int ranks, int rank, Logger log);
  Result (*start_event)(void* context, void** event, ProfilerEventV6* described);
  Result (*stop_event)(void* event);
  Result (*record_event_state)(void* event, int state, ProfilerStateV6* described);
  Result (*finalize)(void* context);
};

}  // namespace sprat::nccl_net
