// NCCL's tuner interface, version 5: our declaration of ncclTuner_v5_t.
#pragma once

#include "plugins/nccl_net/abi/types.hpp"

namespace sprat::nccl_net {

struct TunerDomainsV5 {
  int domains, least_ranks, most_ranks;
};

/// Constants of NCCL's own model, which a tuner may change; ours leaves them.
struct TunerConstantsV5 {
  double base_latencies[7][3];
  double hardware_latencies[3][7][3];
  double most_ll[4][3];
  double most_ring_ll128[4][3];
  double most_tree_ll128[4][3];
  double most_tree[4][3];
  double most_nvls_tree[4][3];
};

struct TunerV5 {
  const char* name;
  Result (*init)(void** context, std::uint64_t communicator, std::size_t ranks, std::size_t nodes,
                 Logger log, TunerDomainsV5* domains, TunerConstantsV5* constants);
  Result (*get_coll_info)(void* context, int collective, std::size_t bytes, int operations,
                          float** costs, int algorithms, int protocols, int registered,
                          int* channels);
  Result (*finalize)(void* context);
};

}  // namespace sprat::nccl_net
