// Reductions over hosts in a ring, where partials grow on their way.
#include "collectives/patterns/ring.hpp"

#include <algorithm>

#include "collectives/patterns/peers.hpp"

namespace sprat::collectives {

namespace {

/// The ring as one rank sees it.
struct Ring {
  explicit Ring(const Problem& problem)
      : p(problem),
        grouping(*problem.grouping),
        hosts(grouping.hosts()),
        home(grouping.host_of(problem.rank)) {}

  int next() const { return (home + 1) % hosts; }
  int previous() const { return (home + hosts - 1) % hosts; }
  /// Ranks of the host that is `distance` hosts back, 0 for this one.
  const std::vector<int>& back(int distance) const {
    return grouping.members((home + hosts - distance) % hosts);
  }
  bool carries(int owner) const { return carrier(grouping, home, owner) == p.rank; }
  bool has_peers() const { return grouping.members(home).size() > 1; }
  /// Of each peer on this host before its contribution is read: the one by which it shares it.
  std::uint32_t signals_awaited() const { return has_peers() ? 1 : 0; }

  const Problem& p;
  const Grouping& grouping;
  int hosts, home;
};

/// How one portion grows: this host adds to it in round `round`, after the ranks before `place` of
/// the line that begins with the host after the owner's.
struct Stop {
  int owner = 0, round = 0, place = 0;
  std::vector<Operand> partials;       ///< By chunk: what comes. None in round 0.
  std::vector<IndexRange> receives{};  ///< The steps that bring it.

  bool first() const { return round == 0; }
  /// What has come of the line when it gets here.
  RankRange before() const { return {0, place}; }
};

/// This rank's stops by rounds. Its own portion's is the only one in the last.
std::vector<std::vector<Stop>> stops_of(const Ring& ring, const std::vector<Portion>& portions) {
  std::vector<std::vector<Stop>> rounds(ring.hosts);
  int place = 0;
  for (int round = 0; round < ring.hosts; ++round) {
    for (int owner : ring.back(round + 1)) {
      if (portions[owner].slice.count == 0 || !ring.carries(owner)) {
        continue;
      }
      rounds[round].push_back({.owner = owner, .round = round, .place = place, .partials = {}});
    }
    place += static_cast<int>(ring.back(round + 1).size());
  }
  return rounds;
}

/// What comes from the host before, in the order of turns.
void receive_partials(const Ring& ring, Plan& plan, const std::vector<Portion>& portions,
                      std::vector<std::vector<Stop>>& rounds, PairwiseExchange& exchange,
                      IndexRange sharing) {
  for (int round = 1; round < ring.hosts; ++round) {
    for (int chunk = 0; chunk < exchange.chunks(); ++chunk) {
      const std::uint32_t first = plan.next_index();
      for (Stop& stop : rounds[round]) {
        const std::size_t count = portions[stop.owner].slice.count;
        stop.partials.push_back(
            plan.room_for(stop.before(), slice(count, exchange.chunks(), chunk).count));
        const int sender = carrier(ring.grouping, ring.previous(), stop.owner);
        const AddedStep recv = plan.recv(sender, stop.partials.back()).after(sharing);
        stop.receives.push_back(recv.alone());
      }
      exchange.arrives(round, chunk, plan.since(first));
    }
  }
}

/// What this host makes of a chunk: the partial that came, if any, then its ranks' contributions.
std::vector<Source> terms_of(const Ring& ring, const Stop& stop, const Portion& portion, int chunks,
                             int chunk) {
  std::vector<Source> terms;
  if (!stop.first()) {
    terms.push_back({.from = stop.partials[chunk], .covers = stop.before()});
  }
  int place = stop.place;
  for (int rank : ring.back(0)) {
    terms.push_back(
        {.from = chunk_of(ring.p, rank, portion, chunks, chunk), .covers = {place, place + 1}});
    ++place;
  }
  return terms;
}

/// Adds to a chunk's partial and sends it on; returns the steps that do.
IndexRange grow(const Ring& ring, Plan& plan, const Stop& stop, const Portion& portion,
                const PairwiseExchange& exchange, int chunk, IndexRange sharing) {
  const std::uint32_t first = plan.next_index();
  const std::vector<Source> terms = terms_of(ring, stop, portion, exchange.chunks(), chunk);
  Operand partial = terms.front().from;
  const IndexRange ready = stop.first() ? sharing : stop.receives[chunk];
  // The only contribution so far leaves as it is. A partial grows where it lies.
  if (terms.size() > 1) {
    if (partial.buffer != Buffer::scratch) {
      partial = plan.scratch(partial.count);
    }
    plan.reduce(terms, partial, ring.signals_awaited()).after(ready);
  }
  const IndexRange growing = plan.since(first);
  plan.send(carrier(ring.grouping, ring.next(), stop.owner), partial)
      .after(growing.first < growing.last ? growing : ready)
      .behind(exchange.behind(stop.round + 1, chunk));
  return plan.since(first);
}

/// Completes the portion that this rank owns, a step a chunk.
void complete(const Ring& ring, Plan& plan, const Stop& stop, const Portion& portion,
              const Operand& result, int chunks, IndexRange sharing) {
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const Operand piece = piece_of(result, slice(portion.slice.count, chunks, chunk));
    plan.reduce(terms_of(ring, stop, portion, chunks, chunk), piece, ring.signals_awaited())
        .after(stop.first() ? sharing : stop.receives[chunk]);
  }
}

/// Rounds of one stop.
int rounds_of(const Ring& ring, const Stop& stop) {
  return (stop.first() ? 0 : 1) + (ring.has_peers() ? 1 : 0) + (stop.owner == ring.p.rank ? 0 : 1);
}

}  // namespace

// Receives come first, so that all are posted when the first partial leaves.
Reduced reduce_around(const Problem& problem, Plan& plan, const std::vector<Portion>& portions,
                      const Operand& result, PairwiseExchange& exchange) {
  const Ring ring(problem);
  const IndexRange sharing = share_inputs(problem, plan, portions);
  std::vector<std::vector<Stop>> rounds = stops_of(ring, portions);
  receive_partials(ring, plan, portions, rounds, exchange, sharing);
  Reduced reduced{.left = std::vector<std::vector<IndexRange>>(portions.size())};
  for (int round = 0; round + 1 < ring.hosts; ++round) {
    for (int chunk = 0; chunk < exchange.chunks(); ++chunk) {
      for (const Stop& stop : rounds[round]) {
        reduced.left[stop.owner].push_back(
            grow(ring, plan, stop, portions[stop.owner], exchange, chunk, sharing));
      }
    }
  }
  reduced.result = plan.next_index();
  for (const Stop& stop : rounds.back()) {
    complete(ring, plan, stop, portions[stop.owner], result, exchange.chunks(), sharing);
  }
  return reduced;
}

// The last message of a portion holds all ranks but those of its owner's host, which are the most
// where that host has the fewest.
std::size_t widest_of_reducing_around(const Problem& problem) {
  const Grouping& grouping = *problem.grouping;
  int most = 0;
  for (int host = 0; host < grouping.hosts(); ++host) {
    const auto members = static_cast<int>(grouping.members(host).size());
    most = std::max(most, problem.ranks() - members);
  }
  return partial_size(problem, {0, most});
}

Cost cost_of_reducing_around(const Problem& problem, const std::vector<Portion>& portions) {
  const Ring ring(problem);
  const std::size_t members = ring.back(0).size(), peers = members - 1;
  Cost cost;
  for (const std::vector<Stop>& stops : stops_of(ring, portions)) {
    for (const Stop& stop : stops) {
      const std::size_t count = portions[stop.owner].slice.count;
      const RankRange then{0, stop.place + static_cast<int>(members)};
      cost.bytes_received += stop.first() ? 0 : count * partial_size(problem, stop.before());
      cost.bytes_sent += stop.owner == problem.rank ? 0 : count * partial_size(problem, then);
      cost.bytes_pulled += peers * count * size_of(problem.input);
      cost.rounds = std::max(cost.rounds, rounds_of(ring, stop));
    }
  }
  return cost;
}

Chains chains_around(const Problem& problem, const std::vector<Portion>& portions) {
  const Ring ring(problem);
  Chains chains;
  for (const std::vector<Stop>& stops : stops_of(ring, portions)) {
    for (const Stop& stop : stops) {
      int& chain = stop.owner == problem.rank ? chains.result : chains.left;
      chain = std::max(chain, rounds_of(ring, stop));
    }
  }
  return chains;
}

}  // namespace sprat::collectives
