// Gather of parts whose lengths only the root knows: one message from each rank to the root.
//
// The root posts a receive for each part where it belongs in its output, from the next rank on and
// round again. Ranks of its own host send too, so that a part of another length than the root
// expects is noticed wherever it comes from.
//
// Cost: 1 round; every part is a message, an empty one too, so that a wrong length is noticed. Use:
// always.
#include "collectives/plan/algorithm.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem&) { return true; }

void plan(const Problem& p, Plan& plan) {
  if (p.rank != p.root) {
    plan.send(p.root, input_of(p, p.rank));
    return;
  }
  for (int distance = 1; distance < p.ranks(); ++distance) {
    const int rank = (p.rank + distance) % p.ranks();
    plan.recv(rank, output_of(p, p.rank, rank));
  }
  plan.copy(input_of(p, p.rank), output_of(p, p.rank, p.rank));
}

Cost cost(const Problem& p) {
  const std::size_t size = size_of(p.input), mine = input_of(p, p.rank).count;
  if (p.rank != p.root) {
    return {.rounds = 1, .bytes_sent = mine * size};
  }
  const std::size_t others = elements_of(p, Buffer::output, p.rank) - mine;
  return {.rounds = p.ranks() > 1 ? 1 : 0, .bytes_received = others * size};
}

}  // namespace

extern const Algorithm gatherv_exchange = {
    .collective = Collective::gatherv,
    .name = "exchange",
    .summary = "A message from each rank to the root.",
    .order = ReduceOrder::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
