// Two-level reduce-scatter: hosts reduce each block to partials, which its owner receives and
// finishes.
//
// It is the first half of the two-level all-reduce (patterns/hierarchical.hpp), where each rank
// owns its block: on every host one carrier reduces the host's contributions to a block and sends
// the partials to the block's owner, in chunks and turns.
//
// Cost: 1 round between hosts, up to 2 inside; with aligned hosts (H-1)/P of the input leaves a
// rank. Use: several hosts with several ranks each.
#include <vector>

#include "collectives/patterns/hierarchical.hpp"
#include "collectives/plan/algorithm.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem& p) { return !p.counts; }

// In place, the output is block `rank` of the input, which its owner alone reads on this host.
void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) {
    return;
  }
  const std::vector<Portion> portions = block_a_rank(p);
  PairwiseExchange exchange = exchange_of(p, portions, widest_of_reducing(p), 1);
  reduce_to_owners(p, plan, portions, output_of(p, p.rank), exchange);
}

Cost cost(const Problem& p) { return cost_of_reducing(p, block_a_rank(p)); }

}  // namespace

extern const Algorithm reduce_scatter_hierarchical = {
    .collective = Collective::reduce_scatter,
    .name = "hierarchical",
    .summary =
        "Partials inside hosts, then one message per partial: several hosts of several ranks.",
    .order = ReduceOrder::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
