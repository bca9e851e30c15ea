// Reductions over hosts in two levels: partials inside hosts, one owner for each portion between
// them; and how all-reduces bring results back.
#pragma once

#include <vector>

#include "collectives/patterns/pairwise_exchange.hpp"
#include "collectives/plan/plan.hpp"
#include "collectives/plan/problem.hpp"

namespace sprat::collectives {

/// What one rank owns of a reduction's result: a slice of a block of everybody's input.
/// Portions are indexed by their owners; empty ones move nothing.
struct Portion {
  int block = 0;
  Slice slice;
};

/// Each rank owns its slice of the only block, as in an all-reduce, or its block.
std::vector<Portion> slice_a_rank(const Problem& problem);
std::vector<Portion> block_a_rank(const Problem& problem);

/// A chunk of a portion of rank `rank`'s input.
Operand chunk_of(const Problem& problem, int rank, const Portion& portion, int chunks, int chunk);

/// Shares what peers on this host read of this rank's input if each portion's carrier reads it, and
/// signals; returns the steps that do. None if the rank has no peers.
IndexRange share_inputs(const Problem& problem, Plan& plan, const std::vector<Portion>& portions);

/// Bytes of an element of the widest message that reduce_to_owners() sends, on whichever host.
std::size_t widest_of_reducing(const Problem& problem);

/// Turns in which portions go round the hosts `trips` times, the same on every rank. An element of
/// what travels has up to `size` bytes.
PairwiseExchange exchange_of(const Problem& problem, const std::vector<Portion>& portions,
                             std::size_t size, int trips);

/// Where a reduction's steps are, for those that follow it. On each host one carrier alone reads a
/// portion of any input.
struct Reduced {
  std::uint32_t result = 0;  ///< The step that completes chunk 0 of the result; the others follow.
  /// By owner, then chunk: the last steps that read that piece of this rank's input for others.
  std::vector<std::vector<IndexRange>> left;
};

/// Ends with problem.rank's portion reduced into `result`, chunk by chunk. On every host the
/// portion's carrier reduces the host's contributions to one partial for each of its canonical
/// subtrees and sends them to the owner. Signals once. On this host only the carrier reads a
/// portion of any input. Takes the first trip of `exchange`.
Reduced reduce_to_owners(const Problem& problem, Plan& plan, const std::vector<Portion>& portions,
                         const Operand& result, PairwiseExchange& exchange);

/// What reduce_to_owners() costs.
Cost cost_of_reducing(const Problem& problem, const std::vector<Portion>& portions);

/// Brings each owner's result, a slice of the output, to every rank: to one rank of each other
/// host, from which that host's ranks pull it. Signals once for each chunk. Takes the second trip
/// of `exchange`.
void spread_results(const Problem& problem, Plan& plan, const std::vector<Portion>& portions,
                    const Reduced& reduced, PairwiseExchange& exchange);

/// Rounds of a reduction by what follows them.
struct Chains {
  int result = 0;  ///< Of this rank's own portion, if it has one.
  int left = 0;    ///< Of what it does for others; 0 if nothing.
};

/// What spread_results() and the reduction before it cost.
Cost cost_of_spreading(const Problem& problem, const std::vector<Portion>& portions,
                       const Cost& reducing, const Chains& chains);

}  // namespace sprat::collectives
