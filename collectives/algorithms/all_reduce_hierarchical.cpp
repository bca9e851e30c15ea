// Two-level all-reduce: partials inside hosts, one owner for each slice between them.
//
// Every rank owns a slice of the result.
// 1. On each host one rank, the carrier, reduces its host's contributions to a slice and sends that
//    partial to the slice's owner (patterns/hierarchical.hpp).
// 2. The owner reduces the partials of all hosts: that slice is complete.
// 3. It sends the slice to one carrier on each other host, from which that host's ranks pull it.
// Slices go in chunks, so that one is reduced while another travels. Any placement of ranks is
// right.
//
// Cost: 2 rounds between hosts, up to 3 inside; with aligned hosts 2(H-1)/P of the payload leaves a
// rank. Use: several hosts, but for small payloads.
#include <algorithm>
#include <vector>

#include "collectives/patterns/hierarchical.hpp"
#include "collectives/patterns/peers.hpp"
#include "collectives/plan/algorithm.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem&) { return true; }

void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) {
    return;
  }
  const std::vector<Portion> portions = slice_a_rank(p);
  const Operand result = piece_of(output_of(p, p.rank), portions[p.rank].slice);
  const std::size_t widest = std::max(widest_of_reducing(p), size_of(p.output));
  PairwiseExchange exchange = exchange_of(p, portions, widest, 2);
  const Reduced reduced = reduce_to_owners(p, plan, portions, result, exchange);
  spread_results(p, plan, portions, reduced, exchange);
}

Cost cost(const Problem& p) {
  const std::vector<Portion> portions = slice_a_rank(p);
  const int pulls = local_ranks(p).size() > 1 ? 1 : 0;
  const bool mine = portions[p.rank].slice.count > 0;
  const Chains chains{.result = mine ? pulls + (p.grouping->hosts() > 1 ? 1 : 0) : 0,
                      .left = pulls + 1};
  return cost_of_spreading(p, portions, cost_of_reducing(p, portions), chains);
}

}  // namespace

extern const Algorithm all_reduce_hierarchical = {
    .collective = Collective::all_reduce,
    .name = "hierarchical",
    .summary =
        "Partials inside hosts, one owner per slice between them: bandwidth on several hosts.",
    .order = ReduceOrder::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
