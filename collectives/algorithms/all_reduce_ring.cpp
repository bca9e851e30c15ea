// Ring all-reduce over hosts (Patarasuk, Yuan 2009).
//
// Hosts stand in a ring, and every rank owns a slice. A slice's partial starts on the host after
// its owner's, goes once round, and grows by each host's contributions, until the owner has it
// complete (patterns/ring.hpp). All slices are under way at once, each a hop further on, so that
// every wire is busy. The results then go to one rank per host and are pulled inside hosts. Each
// host adds to a partial that came: the order is a chain of hosts, not the canonical tree.
//
// Cost: H-1 messages in a row and 1 round; 2(H-1)/P of the payload leaves a rank, whatever the
// placement. Use: where the canonical order makes hosts send several partials of a large payload.
#include <algorithm>
#include <vector>

#include "collectives/patterns/ring.hpp"
#include "collectives/plan/algorithm.hpp"

namespace sprat::collectives {

namespace {

// A user's operation need not be commutative.
bool fits(const Problem& p) { return p.op.op() != ReduceOp::user; }

// In place, a result overwrites the same slice of inputs. Its carrier alone reads that slice on
// this host, and has done so before the result comes.
void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) {
    return;
  }
  const std::vector<Portion> portions = slice_a_rank(p);
  const Operand result = piece_of(output_of(p, p.rank), portions[p.rank].slice);
  const std::size_t widest = std::max(widest_of_reducing_around(p), size_of(p.output));
  PairwiseExchange exchange = exchange_of(p, portions, widest, 2);
  const Reduced reduced = reduce_around(p, plan, portions, result, exchange);
  spread_results(p, plan, portions, reduced, exchange);
}

Cost cost(const Problem& p) {
  const std::vector<Portion> portions = slice_a_rank(p);
  return cost_of_spreading(p, portions, cost_of_reducing_around(p, portions),
                           chains_around(p, portions));
}

}  // namespace

extern const Algorithm all_reduce_ring = {
    .collective = Collective::all_reduce,
    .name = "ring",
    .summary = "Partials grow from host to host, in any order; unaligned hosts, large payloads.",
    .order = ReduceOrder::any,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
