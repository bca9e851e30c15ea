// Scatter of blocks whose lengths only the root knows: one message from the root to each rank.
//
// The root sends each block from where it lies in its input, to the next rank first and round
// again. Ranks of its own host get messages too: where their block begins depends on lengths that
// they do not know.
//
// Cost: 1 round; every block is a message, an empty one too, so that a wrong length is noticed.
// Use: always.
#include "collectives/plan/algorithm.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem&) { return true; }

void plan(const Problem& p, Plan& plan) {
  if (p.rank != p.root) {
    plan.recv(p.root, output_of(p, p.rank));
    return;
  }
  for (int distance = 1; distance < p.ranks(); ++distance) {
    const int rank = (p.rank + distance) % p.ranks();
    plan.send(rank, input_of(p, p.rank, rank));
  }
  plan.copy(input_of(p, p.rank, p.rank), output_of(p, p.rank));
}

Cost cost(const Problem& p) {
  const std::size_t size = size_of(p.input), mine = output_of(p, p.rank).count;
  if (p.rank != p.root) {
    return {.rounds = 1, .bytes_received = mine * size};
  }
  const std::size_t others = elements_of(p, Buffer::input, p.rank) - mine;
  return {.rounds = p.ranks() > 1 ? 1 : 0, .bytes_sent = others * size};
}

}  // namespace

extern const Algorithm scatterv_exchange = {
    .collective = Collective::scatterv,
    .name = "exchange",
    .summary = "A message from the root to each rank.",
    .order = ReduceOrder::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
