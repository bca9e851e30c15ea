// NCCL's tuner interface, version 2: our declaration of ncclTuner_v2_t.
#pragma once

#include "plugins/nccl_net/abi/types.hpp"

namespace sprat::nccl_net {

struct TunerV2 {
  const char* name;
  Result (*init)(std::size_t ranks, std::size_t nodes, Logger log, void** context);
  Result (*get_coll_info)(void* context, int collective, std::size_t bytes, int coll_net, int nvls,
                          int operations, int* algorithm, int* protocol, int* channels);
  Result (*destroy)(void* context);
};

}  // namespace sprat::nccl_net
