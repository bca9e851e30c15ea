// Two-level reduce: every host reduces to partials, which the root receives and finishes.
//
// It is the first half of the two-level all-reduce (patterns/hierarchical.hpp), where the root owns
// all of the result. On each other host the root's carrier reduces the host's contributions, chunk
// by chunk, and sends the partials to the root. The root joins them with those of its own host.
//
// Cost: 1 round between hosts, up to 2 inside; each host sends one message per partial, and only
// its carrier of the root works. Use: several hosts with several ranks each.
#include <vector>

#include "collectives/patterns/hierarchical.hpp"
#include "collectives/plan/algorithm.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem&) { return true; }

/// The root owns all, the others nothing.
std::vector<Portion> portions_of(const Problem& p) {
  std::vector<Portion> portions(p.ranks());
  portions[p.root].slice.count = p.count;
  return portions;
}

// In place, the output is the root's input, which no peer reads.
void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) {
    return;
  }
  const std::vector<Portion> portions = portions_of(p);
  PairwiseExchange exchange = exchange_of(p, portions, widest_of_reducing(p), 1);
  reduce_to_owners(p, plan, portions, output_of(p, p.rank), exchange);
}

Cost cost(const Problem& p) { return cost_of_reducing(p, portions_of(p)); }

}  // namespace

extern const Algorithm reduce_hierarchical = {
    .collective = Collective::reduce,
    .name = "hierarchical",
    .summary = "Partials inside hosts, then one message per partial to the root: several hosts.",
    .order = ReduceOrder::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
