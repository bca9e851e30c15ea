// All-to-all of blocks whose lengths only their two ranks know: one message from each to each.
//
// At distance d each rank receives from rank-d and sends to rank+d, so that ranks do not all begin
// with rank 0. Between hosts a message goes behind what was received a distance before, so that two
// do not crowd one wire; but not where that is longer than what was sent meanwhile, for then this
// rank's wire would be idle. No rank reads another's memory, for it would have to know how long all
// blocks before its own are.
//
// Cost: 1 round; every block is a message, an empty one too, so that a wrong length is noticed.
// Use: always.
#include "collectives/plan/algorithm.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem&) { return true; }

// Shorter messages are not worth a wait.
constexpr std::size_t least_turn_bytes = 128 * 1024;

// Whether the next long message waits until this one has come. It comes no later than this rank has
// sent what it sends meanwhile, if that is as long and its peers do the same.
bool is_turn(const Problem& p, int from, int to) {
  const std::size_t received = output_of(p, p.rank, from).count;
  return !p.grouping->together(p.rank, from) && received * size_of(p.input) >= least_turn_bytes &&
         received <= input_of(p, p.rank, to).count;
}

void plan(const Problem& p, Plan& plan) {
  IndexRange turn_before;
  for (int distance = 1; distance < p.ranks(); ++distance) {
    const int to = (p.rank + distance) % p.ranks();
    const int from = (p.rank - distance + p.ranks()) % p.ranks();
    const AddedStep recv = plan.recv(from, output_of(p, p.rank, from));
    plan.send(to, input_of(p, p.rank, to))
        .behind(p.grouping->together(p.rank, to) ? IndexRange{} : turn_before);
    turn_before = is_turn(p, from, to) ? recv.alone() : IndexRange{};
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
