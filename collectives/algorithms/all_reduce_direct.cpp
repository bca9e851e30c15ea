// Direct all-reduce inside a host: each rank reduces one slice from all inputs, then pulls the
// rest.
//
// 1. Every rank shares its input and signals.
// 2. Rank r reduces slice r: it reads that slice of all inputs in one pass and writes it to its
//    output. Together the ranks have scattered the result over their outputs.
// 3. Every rank shares its slice, signals again, and pulls the slices of the others.
// This is Rabenseifner's reduce-scatter and all-gather (2004), with reads of shared memory for
// messages.
//
// Cost: 2 rounds; each rank reads (P-1)/P of the payload twice. Use: large payloads on one host;
// the least memory traffic that single-copy reads allow.
#include <vector>

#include "collectives/patterns/peers.hpp"
#include "collectives/plan/algorithm.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem& p) { return p.grouping->hosts() == 1; }

// In place, an output slice overwrites the input slice of the same rank. Its owner alone reads
// that slice of any input, and has done so before its second signal.
void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) {
    return;
  }
  const Slice mine = slice(p.count, p.ranks(), p.rank);
  const Operand result = piece_of(output_of(p, p.rank), mine);
  const bool alone = p.ranks() == 1;
  if (!alone) {
    plan.share(input_of(p, p.rank));
    plan.signal();
    plan.next_round();
  }
  if (mine.count > 0) {
    std::vector<Source> terms;
    for (int rank = 0; rank < p.ranks(); ++rank) {
      terms.push_back({.from = piece_of(input_of(p, rank), mine), .covers = {rank, rank + 1}});
    }
    plan.reduce(terms, result, alone ? 0 : 1);
    plan.next_round();
  }
  if (alone) {
    return;
  }
  if (mine.count > 0) {
    plan.share(result);
  }
  plan.signal();
  plan.next_round();
  for (int rank : local_ranks(p)) {
    const Slice theirs = slice(p.count, p.ranks(), rank);
    if (rank == p.rank || theirs.count == 0) {
      continue;
    }
    plan.copy(piece_of(output_of(p, rank), theirs), piece_of(output_of(p, p.rank), theirs), 2);
  }
}

Cost cost(const Problem& p) {
  const std::size_t mine = slice(p.count, p.ranks(), p.rank).count, others = p.count - mine;
  const auto peers = static_cast<std::size_t>(p.ranks() - 1);
  return {.rounds = (mine > 0 && peers > 0 ? 1 : 0) + (others > 0 ? 1 : 0),
          .bytes_pulled = peers * mine * size_of(p.input) + others * size_of(p.output)};
}

}  // namespace

extern const Algorithm all_reduce_direct = {
    .collective = Collective::all_reduce,
    .name = "direct",
    .summary = "Each rank reduces a slice and pulls the others: bandwidth on one host.",
    .order = ReduceOrder::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
