// Recursive doubling for reduce-scatter: partials of all blocks are exchanged at each level of the
// canonical tree, but at the root only those that the other half keeps.
// Cost: ceil(lg P) messages in a row, each of the whole payload but the last. Use: more than two
// hosts, a rank each, and small payloads, where a message costs more than its bytes.
#include <algorithm>
#include <vector>

#include "collectives/algorithm.hpp"
#include "collectives/doubling.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem& p) { return !p.counts && p.grouping->hosts() == p.ranks(); }

/// Block `block` of a partial of all blocks.
Operand block_of(const Problem& p, const Operand& partial, int block) {
  return piece_of(partial, {p.count * static_cast<std::size_t>(block), p.count});
}

/// This rank's contribution, its blocks one after another.
Operand own_partial(const Problem& p, Plan& plan) {
  const Operand all = plan.scratch(p.count * static_cast<std::size_t>(p.ranks()));
  for (int block = 0; block < p.ranks(); ++block) {
    const Source own{.from = input_of(p, p.rank, block), .covers = {p.rank, p.rank + 1}};
    plan.reduce({&own, 1}, block_of(p, all, block));
  }
  return all;
}

void add_up(Plan& plan, const Meeting& meeting, const Operand& mine, const Operand& theirs,
            const Operand& to) {
  std::vector<Source> terms = {{.from = mine, .covers = meeting.mine},
                               {.from = theirs, .covers = meeting.theirs}};
  std::ranges::sort(terms, {}, [](const Source& term) { return term.covers.first; });
  plan.reduce(terms, to);
}

void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) return;
  const std::vector<Meeting> meetings = meetings_of(p);
  if (meetings.empty()) {
    const Source own{.from = input_of(p, p.rank), .covers = {0, 1}};
    plan.reduce({&own, 1}, output_of(p, p.rank));
    return;
  }
  Operand partial = own_partial(p, plan);
  for (const Meeting& meeting : meetings) {
    const bool last = &meeting == &meetings.back();
    plan.next_round();
    for (int sink : meeting.sinks) plan.send(sink, last ? block_of(p, partial, sink) : partial);
    const Operand theirs = plan.scratch(last ? p.count : partial.count);
    plan.recv(meeting.source, theirs);
    plan.next_round();
    if (last) {
      add_up(plan, meeting, block_of(p, partial, p.rank), theirs, output_of(p, p.rank));
    } else {
      add_up(plan, meeting, partial, theirs, theirs);
      partial = theirs;
    }
  }
}

Cost cost(const Problem& p) {
  if (p.count == 0) return {};
  const std::size_t block_bytes = p.count * size_of(p.accumulator());
  const std::vector<Meeting> meetings = meetings_of(p);
  Cost cost;
  for (const Meeting& meeting : meetings) {
    const bool last = &meeting == &meetings.back();
    const std::size_t bytes =
        last ? block_bytes : block_bytes * static_cast<std::size_t>(p.ranks());
    ++cost.rounds;
    cost.bytes_sent += meeting.sinks.size() * bytes;
    cost.bytes_received += bytes;
  }
  return cost;
}

}  // namespace

extern const Algorithm reduce_scatter_doubling = {
    .collective = Collective::reduce_scatter,
    .name = "doubling",
    .summary = "Partials of all blocks at each level of the tree: several hosts, small payloads.",
    .order = ReduceOrder::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
