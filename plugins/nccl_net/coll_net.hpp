// NCCL's interface of networks that reduce, in its neutral form: the processors of the hosts do it,
// by a Sprat communicator of the ranks that NCCL connects. Any thread; calls on one communicator
// come in the same order on all ranks.
#pragma once

#include <cstddef>

#include "plugins/nccl_net/abi/types.hpp"

namespace sprat::nccl_net::coll_net {

inline constexpr const char* name = "Sprat";

/// Collective, and waits for all `ranks`, as NCCL has it: at most SPRAT_JOIN_TIMEOUT.
Result connect(void** handles, int ranks, int rank, void* listener, void** comm);
/// Sums, products, minima and maxima of all of NCCL's types. What NCCL does itself before and
/// behind, as for averages, comes as a sum.
Result reduce_support(int data_type, int operation, int* supported);
/// Null in `request`: too many are under way, call again.
Result iallreduce(void* comm, const void* source, void* target, std::size_t count, int data_type,
                  int operation, void** request);
Result test(void* request, int* done, int* bytes);
Result close(void* comm);

}  // namespace sprat::nccl_net::coll_net
