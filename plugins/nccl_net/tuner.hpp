// NCCL's tuner interface in its neutral form.
//
// SPRAT_NCCL_TUNING says what it does: empty: nothing, NCCL's own costs stay; `model`: costs from a
// model of the wire; else a file of rules. NCCL takes the tuner of the network's library without
// being asked, so what nobody asked for must change nothing.
#pragma once

#include <cstddef>

#include "plugins/nccl_net/abi/types.hpp"

namespace sprat::nccl_net::tuner {

inline constexpr const char* name = "Sprat";

/// Never fails: NCCL would end the job for a file that cannot be read. That is said as a warning.
Result init(std::size_t ranks, std::size_t nodes, Logger log, void** context);
/// `costs` is NCCL's table, `algorithms` rows of `protocols`.
Result costs(void* context, int collective, std::size_t bytes, float** costs, int algorithms,
             int protocols, int* channels);
/// Of version 2, which has no table: the algorithm and protocol of a rule that holds, else nothing.
Result choose(void* context, int collective, std::size_t bytes, bool coll_net, bool nvls,
              int* algorithm, int* protocol, int* channels);
Result finalize(void* context);

}  // namespace sprat::nccl_net::tuner
