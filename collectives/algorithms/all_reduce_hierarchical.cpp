// Two-level all-reduce: every rank owns a slice, which hosts' partials reach by one message each;
// the results go to one rank per host and are pulled inside hosts. Any placement of ranks. Cost: 2
// rounds between hosts, up to 3 inside; with aligned hosts 2(H-1)/P of the payload leaves a rank.
// Use: several hosts, but for small payloads.
#include <algorithm>
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

/// A chunk of the owner's result, as `holder` has it.
Operand result_of(const Problem& p, int holder, const Portion& portion, int chunks, int chunk) {
  return piece_of(piece_of(output_of(p, holder), portion.slice),
                  slice(portion.slice.count, chunks, chunk));
}

/// Owners on `host` whose results this rank receives for its own.
std::vector<int> held_from(const Problem& p, const std::vector<Portion>& portions, int host) {
  std::vector<int> owners;
  for (int owner : p.grouping->members(host)) {
    const bool carries = carrier(*p.grouping, p.grouping->host_of(p.rank), owner) == p.rank;
    if (carries && portions[owner].slice.count > 0) owners.push_back(owner);
  }
  return owners;
}

/// Sends this rank's results and receives those of other hosts that it holds. By owner, then chunk:
/// the step that brings it. In place, a result overwrites the input that its carrier, and nobody
/// else on this host, has read for its owner.
std::vector<std::vector<IndexRange>> exchange_results(const Problem& p, Plan& plan,
                                                      const std::vector<Portion>& portions,
                                                      const Reduced& reduced, Legs& legs) {
  const Grouping& grouping = *p.grouping;
  const int home = grouping.host_of(p.rank), hosts = grouping.hosts(), chunks = legs.chunks();
  std::vector<std::vector<IndexRange>> brought(portions.size());
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const std::uint32_t mine = reduced.result + static_cast<std::uint32_t>(chunk);
    brought[p.rank].push_back({mine, mine + 1});
    for (int distance = 1; distance < hosts; ++distance) {
      const auto first = static_cast<std::uint32_t>(plan.steps.size());
      for (int owner : held_from(p, portions, (home + hosts - distance) % hosts)) {
        const auto step = plan.recv(owner, result_of(p, p.rank, portions[owner], chunks, chunk));
        plan.steps[step].after = reduced.left[owner][chunk];
        brought[owner].push_back({step, step + 1});
      }
      const auto last = static_cast<std::uint32_t>(plan.steps.size());
      legs.arrives(hosts - 1 + distance, chunk, {first, last});
    }
  }
  for (int distance = 1; distance < hosts; ++distance) {
    const int to = carrier(grouping, (home + distance) % hosts, p.rank);
    for (int chunk = 0; portions[p.rank].slice.count > 0 && chunk < chunks; ++chunk) {
      const Operand result = result_of(p, p.rank, portions[p.rank], chunks, chunk);
      Step& send = plan.steps[plan.send(to, result)];
      send.after = brought[p.rank][chunk];
      send.behind = legs.behind(hosts - 1 + distance, chunk);
    }
  }
  return brought;
}

// One signal for each chunk, so that peers pull it while the next one travels.
void spread_results(const Problem& p, Plan& plan, const std::vector<Portion>& portions,
                    const Reduced& reduced, Legs& legs) {
  const Grouping& grouping = *p.grouping;
  const int home = grouping.host_of(p.rank), chunks = legs.chunks();
  std::vector<int> held, elsewhere;
  for (int owner = 0; owner < p.ranks(); ++owner) {
    if (portions[owner].slice.count == 0) continue;
    (carrier(grouping, home, owner) == p.rank ? held : elsewhere).push_back(owner);
  }
  const auto brought = exchange_results(p, plan, portions, reduced, legs);
  if (grouping.members(home).size() == 1) return;
  auto first = held.empty() ? 0 : static_cast<std::uint32_t>(plan.steps.size());
  std::vector<IndexRange> signals;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (int owner : held) {
      const Operand result = result_of(p, p.rank, portions[owner], chunks, chunk);
      plan.steps[plan.share(result)].after = brought[owner][chunk];
    }
    const std::uint32_t signal = plan.signal();
    plan.steps[signal].after = {first, signal};
    signals.push_back({signal, signal + 1});
    first = signal;
  }
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (int owner : elsewhere) {
      const int holder = carrier(grouping, home, owner);
      const std::uint32_t copy = plan.copy(result_of(p, holder, portions[owner], chunks, chunk),
                                           result_of(p, p.rank, portions[owner], chunks, chunk),
                                           static_cast<std::uint32_t>(chunk) + 2);
      plan.steps[copy].after = signals[chunk];
    }
  }
}

void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) return;
  const std::vector<Portion> portions = slices(p);
  const Operand result = piece_of(output_of(p, p.rank), portions[p.rank].slice);
  Legs legs = legs_of(p, portions, 2);
  const Reduced reduced = reduce_to_owners(p, plan, portions, result, legs);
  spread_results(p, plan, portions, reduced, legs);
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
  const int pulls = grouping.members(home).size() > 1 ? 1 : 0;
  const int received = held > mine ? pulls + 2 : 0;
  const int reduced = mine > 0 ? pulls + (other_hosts > 0 ? 1 : 0) : 0;
  const int sent = mine > 0 && other_hosts > 0 ? reduced + 1 : 0;
  const int spread = held > 0 ? std::max(reduced, received) : cost.rounds;
  cost.rounds = std::max({cost.rounds, sent, received, held < p.count ? spread + 1 : 0});
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
