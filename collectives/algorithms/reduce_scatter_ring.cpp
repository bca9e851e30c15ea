// Ring reduce-scatter over hosts (Patarasuk, Yuan 2009).
//
// It is the first half of the ring all-reduce: each block's partial starts on the host after its
// owner's, goes from host to host, grows by their ranks' contributions, and ends with its owner
// (patterns/ring.hpp).
//
// Cost: H-1 messages in a row; (H-1)/P of the input leaves a rank, whatever the placement. Use:
// where the canonical order makes hosts send several partials of large blocks.
#include <vector>

#include "collectives/patterns/ring.hpp"
#include "collectives/plan/algorithm.hpp"

namespace sprat::collectives {

namespace {

// A user's operation need not be commutative.
bool fits(const Problem& p) { return !p.counts && p.op.op() != ReduceOp::user; }

// In place, the output is block `rank` of the input, which its owner alone reads on this host.
void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) {
    return;
  }
  const std::vector<Portion> portions = block_a_rank(p);
  PairwiseExchange exchange = exchange_of(p, portions, widest_of_reducing_around(p), 1);
  reduce_around(p, plan, portions, output_of(p, p.rank), exchange);
}

Cost cost(const Problem& p) { return cost_of_reducing_around(p, block_a_rank(p)); }

}  // namespace

extern const Algorithm reduce_scatter_ring = {
    .collective = Collective::reduce_scatter,
    .name = "ring",
    .summary = "Partials grow from host to host, in any order: unaligned hosts, large blocks.",
    .order = ReduceOrder::any,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
