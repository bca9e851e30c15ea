// A collective call of the public API: what is checked of it, and how it is posted.
#pragma once

#include <memory>
#include <span>

#include "collectives/communicator_impl.hpp"
#include "sprat/communicator.hpp"

namespace sprat::collectives {

struct Call {
  Collective collective;
  std::size_t count = 0;
  ConstElements in;
  Elements out;
  Reduction op = ReduceOp::sum;
  int root = 0;
  bool stage_input = false;                                                   ///< See Operation.
  std::shared_ptr<const BlockCounts> counts = nullptr, out_counts = nullptr;  ///< See Problem.
};

/// Queues a call whose contract is checked; waits for it if options.blocking.
Work post(Communicator::Impl& impl, const Call& call, const Options& options);

/// Throws Error{unavailable} in a child of the process that joined.
void check_process(const Communicator::Impl& impl);

// Each throws Error{invalid_argument} unless what it is named for is in order.
void check_rank(const char* what, int rank, int size);
/// There is memory, and not more than an address space has.
void check_memory(const char* what, ConstElements elements);
/// `part` of each of `ranks` are together no more than that either.
void check_blocks(const char* what, ConstElements part, int ranks);
void check_types(DType in, DType out);
/// Equal types, or an f32 result of narrower floats; and an operation that takes them.
void check_reduction(DType in, DType out, const Reduction& op);
/// Input and output are disjoint, or `in` lies exactly at `place`.
void check_overlap(ConstElements in, Elements out, const void* in_place_input,
                   const void* in_place_output);
/// `counts` has an entry for each of `ranks`, together as many as `buffer` has. Returns them.
std::shared_ptr<const BlockCounts> check_counts(const char* what,
                                                std::span<const std::size_t> counts, int ranks,
                                                const char* buffer, std::size_t buffer_count);

/// Block `index` of `bytes` each.
const std::byte* block(const void* data, int index, std::size_t bytes);
/// Where a block of elements lies that differ in number.
const std::byte* block(const void* data, const BlockCounts& counts, int index, DType dtype);

}  // namespace sprat::collectives
