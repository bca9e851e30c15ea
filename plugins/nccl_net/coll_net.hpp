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
/// Blocks of `bytes_a_rank`, one a rank in rank order, of which a call is about those bytes that
/// lie in the window. NCCL goes through long blocks by one window after the other.
struct Window {
  std::size_t bytes_a_rank = 0, offset = 0, bytes = 0;
};
/// The window <- all blocks; `source` is where this rank's block begins in it, if it does.
Result iallgather(void* comm, const void* source, void* target, const Window& window,
                  void** request);
/// This rank's block, as far as it lies in the window <- sum, and so on, of all ranks' windows.
Result ireducescatter(void* comm, const void* source, void* target, const Window& window,
                      int data_type, int operation, void** request);
Result test(void* request, int* done, int* bytes);
Result close(void* comm);

}  // namespace sprat::nccl_net::coll_net
