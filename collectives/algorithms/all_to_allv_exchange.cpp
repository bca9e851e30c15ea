// All-to-all of blocks whose lengths only their two ranks know: one message from each to each.
//
// At distance d each rank receives from rank-d and sends to rank+d, so that ranks do not all begin
// with rank 0. No rank reads another's memory, for it would have to know how long all blocks before
// its own are.
//
// Cost: 1 round; every block is a message, an empty one too, so that a wrong length is noticed.
// Use: always.
#include "collectives/plan/algorithm.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem&) { return true; }

void plan(const Problem& p, Plan& plan) {
  for (int distance = 1; distance < p.ranks(); ++distance) {
    const int to = (p.rank + distance) % p.ranks();
    const int from = (p.rank - distance + p.ranks()) % p.ranks();
    plan.recv(from, output_of(p, p.rank, from));
    plan.send(to, input_of(p, p.rank, to));
  }
  plan.copy(input_of(p, p.rank, p.rank), output_of(p, p.rank, p.rank));
}

Cost cost(const Problem& p) {
  const std::size_t size = size_of(p.input), mine = input_of(p, p.rank, p.rank).count;
  return {.rounds = p.ranks() > 1 ? 1 : 0,
          .bytes_sent = (elements_of(p, Buffer::input, p.rank) - mine) * size,
          .bytes_received = (elements_of(p, Buffer::output, p.rank) - mine) * size};
}

}  // namespace

extern const Algorithm all_to_allv_exchange = {
    .collective = Collective::all_to_allv,
    .name = "exchange",
    .summary = "A message from each rank to each.",
    .order = ReduceOrder::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
