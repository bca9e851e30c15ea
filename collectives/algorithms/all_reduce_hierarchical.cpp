// Two-level all-reduce: every rank owns a slice, which hosts' partials reach by one message each;
// the results go to one rank per host and are pulled inside hosts. Any placement of ranks. Cost: 2
// rounds between hosts, up to 3 inside; with aligned hosts 2(H-1)/P of the payload leaves a rank.
// Use: several hosts, but for small payloads.
#include <vector>

#include "collectives/algorithm.hpp"
#include "collectives/peers.hpp"
#include "collectives/two_level.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem&) { return true; }

std::vector<Portion> slices(const Problem& p) {
  std::vector<Portion> portions;
  for (int owner = 0; owner < p.ranks(); ++owner) {
    portions.push_back({.slice = slice(p.count, p.ranks(), owner)});
  }
  return portions;
}

// In place, an output slice overwrites the input slice of the same rank. Its carrier alone reads
// that slice on this host, and has done so before it shares the result.
void spread_results(const Problem& p, Plan& plan, const std::vector<Portion>& portions) {
  const Grouping& grouping = *p.grouping;
  const int home = grouping.host_of(p.rank);
  const auto result_of = [&](int holder, int owner) {
    return piece_of(output_of(p, holder), portions[owner].slice);
  };
  std::vector<int> held, elsewhere;
  for (int step = 0; step < p.ranks(); ++step) {
    const int owner = (p.rank + step) % p.ranks();  // so that not all pull from one
    if (portions[owner].slice.count == 0) continue;
    (carrier(grouping, home, owner) == p.rank ? held : elsewhere).push_back(owner);
  }
  const bool sends = portions[p.rank].slice.count > 0;
  for (int distance = 1; sends && distance < grouping.hosts(); ++distance) {
    const int host = (home + distance) % grouping.hosts();
    plan.send(carrier(grouping, host, p.rank), result_of(p.rank, p.rank));
  }
  for (int owner : held) {
    if (owner != p.rank) plan.recv(owner, result_of(p.rank, owner));
  }
  plan.next_round();
  if (grouping.members(home).size() == 1) return;
  for (int owner : held) plan.share(result_of(p.rank, owner));
  plan.signal();
  plan.next_round();
  for (int owner : elsewhere) {
    plan.copy(result_of(carrier(grouping, home, owner), owner), result_of(p.rank, owner), 2);
  }
}

void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) return;
  const std::vector<Portion> portions = slices(p);
  const Operand result = piece_of(output_of(p, p.rank), portions[p.rank].slice);
  reduce_to_owners(p, plan, portions, result);
  spread_results(p, plan, portions);
}

Cost cost(const Problem& p) {
  const Grouping& grouping = *p.grouping;
  const int home = grouping.host_of(p.rank);
  const std::vector<Portion> portions = slices(p);
  const std::size_t mine = portions[p.rank].slice.count;
  const auto other_hosts = static_cast<std::size_t>(grouping.hosts() - 1);
  std::size_t held = 0;
  for (int owner = 0; owner < p.ranks(); ++owner) {
    if (carrier(grouping, home, owner) == p.rank) held += portions[owner].slice.count;
  }
  Cost cost = cost_of_reducing(p, portions);
  const bool sends = mine > 0 && other_hosts > 0;
  cost.rounds += (sends || held > mine ? 1 : 0) + (held < p.count ? 1 : 0);
  cost.bytes_sent += other_hosts * mine * size_of(p.output);
  cost.bytes_received += (held - mine) * size_of(p.output);
  cost.bytes_pulled += (p.count - held) * size_of(p.output);
  return cost;
}

}  // namespace

extern const Algorithm all_reduce_hierarchical = {
    .collective = Collective::all_reduce,
    .name = "hierarchical",
    .summary =
        "Partials inside hosts, one owner per slice between them: bandwidth on several hosts.",
    .order = Order::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
