// Reductions over hosts in two levels: partials inside hosts, one owner for each portion between
// them.
#include "collectives/two_level.hpp"

#include <algorithm>

#include "collectives/peers.hpp"

namespace sprat::collectives {

namespace {

/// A portion of rank `rank`'s input.
Operand portion_of(const Problem& problem, int rank, const Portion& portion) {
  return piece_of(input_of(problem, rank, portion.block), portion.slice);
}

int home_of(const Problem& problem) { return problem.grouping->host_of(problem.rank); }

/// Owners on other hosts whose portion problem.rank carries, without empty portions.
std::vector<int> owners_served(const Problem& problem, const std::vector<Portion>& portions) {
  std::vector<int> owners;
  for (int owner : remote_ranks(problem)) {
    if (portions[owner].slice.count == 0) continue;
    if (carrier(*problem.grouping, home_of(problem), owner) == problem.rank)
      owners.push_back(owner);
  }
  return owners;
}

/// This host's partial over `range`, as a step of the current round if there is anything to add.
Operand partial_over(const Problem& problem, Plan& plan, RankRange range, const Portion& portion) {
  if (range == RankRange{problem.rank, problem.rank + 1}) {
    return widened(problem, plan, portion_of(problem, problem.rank, portion));
  }
  std::vector<Source> terms;
  for (int rank = range.first; rank < range.last; ++rank) {
    terms.push_back({.from = portion_of(problem, rank, portion), .covers = {rank, rank + 1}});
  }
  const Operand partial = plan.scratch(portion.slice.count);
  plan.reduce(terms, partial, 1);
  return partial;
}

/// Shares what peers read of this rank's input; returns the steps that do.
IndexRange share_inputs(const Problem& problem, Plan& plan, const std::vector<Portion>& portions) {
  const Grouping& grouping = *problem.grouping;
  if (grouping.members(home_of(problem)).size() == 1) return {};
  const auto first = static_cast<std::uint32_t>(plan.steps.size());
  for (int owner = 0; owner < problem.ranks(); ++owner) {
    const bool read_by_peers = carrier(grouping, home_of(problem), owner) != problem.rank;
    if (read_by_peers && portions[owner].slice.count > 0) {
      plan.share(portion_of(problem, problem.rank, portions[owner]));
    }
  }
  return {first, plan.signal() + 1};
}

/// Terms of problem.rank's own portion: local contributions, and partials that other hosts send,
/// which may arrive as soon as `sharing` is over.
std::vector<Source> gather_terms(const Problem& problem, Plan& plan, const Portion& mine,
                                 IndexRange sharing) {
  const Grouping& grouping = *problem.grouping;
  std::vector<Source> terms;
  for (int rank : grouping.members(home_of(problem))) {
    terms.push_back({.from = portion_of(problem, rank, mine), .covers = {rank, rank + 1}});
  }
  for (int host = 0; host < grouping.hosts(); ++host) {
    if (host == home_of(problem)) continue;
    for (const RankRange& range : grouping.subtrees(host)) {
      const Operand partial = plan.scratch(mine.slice.count);
      plan.steps[plan.recv(carrier(grouping, host, problem.rank), partial)].after = sharing;
      terms.push_back({.from = partial, .covers = range});
    }
  }
  std::ranges::sort(terms, {}, [](const Source& term) { return term.covers.first; });
  return terms;
}

}  // namespace

void reduce_to_owners(const Problem& problem, Plan& plan, const std::vector<Portion>& portions,
                      const Operand& result) {
  const Portion& mine = portions[problem.rank];
  struct Message {
    int owner;
    Operand partial;
  };
  std::vector<Message> leaving;
  const IndexRange sharing = share_inputs(problem, plan, portions);
  plan.next_round();
  for (int owner : owners_served(problem, portions)) {
    for (const RankRange& range : problem.grouping->subtrees(home_of(problem))) {
      leaving.push_back({owner, partial_over(problem, plan, range, portions[owner])});
    }
  }
  plan.next_round();
  for (const Message& message : leaving) plan.send(message.owner, message.partial);
  if (mine.slice.count > 0) {
    const std::vector<Source> terms = gather_terms(problem, plan, mine, sharing);
    plan.next_round();
    plan.reduce(terms, result, local_ranks(problem).size() > 1 ? 1 : 0);
  }
  plan.next_round();
}

Cost cost_of_reducing(const Problem& problem, const std::vector<Portion>& portions) {
  const Grouping& grouping = *problem.grouping;
  const std::size_t partial_size = size_of(problem.accumulator());
  const std::size_t mine = portions[problem.rank].slice.count;
  const std::size_t peers = local_ranks(problem).size() - 1;
  std::size_t partials_here = 0, partials_elsewhere = 0;
  for (int host = 0; host < grouping.hosts(); ++host) {
    (host == home_of(problem) ? partials_here : partials_elsewhere) +=
        grouping.subtrees(host).size();
  }
  std::size_t carried = 0;
  for (int owner : owners_served(problem, portions)) carried += portions[owner].slice.count;
  const int messages = carried > 0 ? (peers > 0 ? 2 : 1) : mine > 0 && grouping.hosts() > 1 ? 1 : 0;
  return {.rounds = messages + (mine > 0 && peers > 0 ? 1 : 0),
          .bytes_sent = partials_here * carried * partial_size,
          .bytes_received = partials_elsewhere * mine * partial_size,
          .bytes_pulled = peers * (mine + carried) * size_of(problem.input)};
}

}  // namespace sprat::collectives
