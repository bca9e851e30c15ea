// Reductions over hosts in two levels: partials inside hosts, one owner for each portion between
// them.
#include "collectives/patterns/hierarchical.hpp"

#include <algorithm>

#include "collectives/patterns/peers.hpp"

namespace sprat::collectives {

namespace {

int home_of(const Problem& problem) { return problem.grouping->host_of(problem.rank); }

/// Owners on `host`, another one, whose portion problem.rank carries, without empty portions.
std::vector<int> owners_served(const Problem& problem, const std::vector<Portion>& portions,
                               int host) {
  std::vector<int> owners;
  for (int owner : problem.grouping->members(host)) {
    if (portions[owner].slice.count == 0) {
      continue;
    }
    if (carrier(*problem.grouping, home_of(problem), owner) == problem.rank) {
      owners.push_back(owner);
    }
  }
  return owners;
}

/// This host's partial of a chunk over `range`, made by a step unless it is this rank's own
/// contribution. A single peer's contribution is fetched as it is: see Plan::room_for().
Operand partial_over(const Problem& problem, Plan& plan, RankRange range, const Portion& portion,
                     int chunks, int chunk, IndexRange sharing, IndexRange behind) {
  std::vector<Source> terms;
  for (int rank = range.first; rank < range.last; ++rank) {
    terms.push_back(
        {.from = chunk_of(problem, rank, portion, chunks, chunk), .covers = {rank, rank + 1}});
  }
  const Operand& first = terms.front().from;
  if (range == RankRange{problem.rank, problem.rank + 1}) {
    return first;
  }
  const Operand partial = plan.room_for(range, first.count);
  if (range.size() == 1) {
    plan.copy(first, partial, 1).after(sharing).behind(behind);
  } else {
    plan.reduce(terms, partial, 1).after(sharing).behind(behind);
  }
  return partial;
}

/// Reduces and sends this host's partials of a turn's chunk once `sharing` is over; returns the
/// steps.
IndexRange send_partials(const Problem& problem, Plan& plan, int owner, const Portion& portion,
                         const PairwiseExchange& exchange, int distance, int chunk,
                         IndexRange sharing) {
  const int chunks = exchange.chunks();
  const std::uint32_t first = plan.next_index();
  std::vector<Operand> partials;
  for (const RankRange& range : problem.grouping->subtrees(home_of(problem))) {
    partials.push_back(partial_over(problem, plan, range, portion, chunks, chunk, sharing,
                                    exchange.work_behind(distance, chunk)));
  }
  const IndexRange reducing = plan.since(first);
  const IndexRange ready = reducing.first < reducing.last ? reducing : sharing;
  for (const Operand& partial : partials) {
    plan.send(owner, partial).after(ready).behind(exchange.behind(distance, chunk));
  }
  return plan.since(first);
}

/// Terms of a chunk of problem.rank's own portion: local contributions, and partials that other
/// hosts send, which may arrive as soon as `sharing` is over.
std::vector<Source> gather_terms(const Problem& problem, Plan& plan, const Portion& mine,
                                 PairwiseExchange& exchange, int chunk, IndexRange sharing) {
  const Grouping& grouping = *problem.grouping;
  const int home = home_of(problem), hosts = grouping.hosts();
  std::vector<Source> terms;
  for (int rank : grouping.members(home)) {
    const Operand own = chunk_of(problem, rank, mine, exchange.chunks(), chunk);
    terms.push_back({.from = own, .covers = {rank, rank + 1}});
  }
  const std::size_t count = terms.front().from.count;
  for (int distance = 1; distance < hosts; ++distance) {
    const int host = (home + hosts - distance) % hosts;
    const std::uint32_t first = plan.next_index();
    for (const RankRange& range : grouping.subtrees(host)) {
      const Operand partial = plan.room_for(range, count);
      plan.recv(carrier(grouping, host, problem.rank), partial).after(sharing);
      terms.push_back({.from = partial, .covers = range});
    }
    exchange.arrives(distance, chunk, plan.since(first));
  }
  std::ranges::sort(terms, {}, [](const Source& term) { return term.covers.first; });
  return terms;
}

/// A chunk of the owner's result, as `holder` has it.
Operand result_of(const Problem& problem, int holder, const Portion& portion, int chunks,
                  int chunk) {
  return piece_of(piece_of(output_of(problem, holder), portion.slice),
                  slice(portion.slice.count, chunks, chunk));
}

/// Bytes of one element of all that a host sends to an owner elsewhere.
std::size_t partials_size(const Problem& problem, int host) {
  std::size_t size = 0;
  for (const RankRange& range : problem.grouping->subtrees(host)) {
    size += partial_size(problem, range);
  }
  return size;
}

/// Owners on `host` whose results this rank receives for its own.
std::vector<int> held_from(const Problem& problem, const std::vector<Portion>& portions, int host) {
  std::vector<int> owners;
  for (int owner : problem.grouping->members(host)) {
    const bool carries =
        carrier(*problem.grouping, problem.grouping->host_of(problem.rank), owner) == problem.rank;
    if (carries && portions[owner].slice.count > 0) {
      owners.push_back(owner);
    }
  }
  return owners;
}

/// Sends this rank's results and receives those of other hosts that it holds. By owner, then chunk:
/// the step that brings it. In place, a result overwrites the input that its carrier, and nobody
/// else on this host, has read for its owner.
std::vector<std::vector<IndexRange>> exchange_results(const Problem& problem, Plan& plan,
                                                      const std::vector<Portion>& portions,
                                                      const Reduced& reduced,
                                                      PairwiseExchange& exchange) {
  const Grouping& grouping = *problem.grouping;
  const int home = grouping.host_of(problem.rank), hosts = grouping.hosts(),
            chunks = exchange.chunks();
  std::vector<std::vector<IndexRange>> brought(portions.size());
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const std::uint32_t mine = reduced.result + static_cast<std::uint32_t>(chunk);
    brought[problem.rank].push_back({mine, mine + 1});
    for (int distance = 1; distance < hosts; ++distance) {
      const std::uint32_t first = plan.next_index();
      for (int owner : held_from(problem, portions, (home + hosts - distance) % hosts)) {
        const Operand result = result_of(problem, problem.rank, portions[owner], chunks, chunk);
        const AddedStep recv = plan.recv(owner, result).after(reduced.left[owner][chunk]);
        brought[owner].push_back(recv.alone());
      }
      exchange.arrives(hosts - 1 + distance, chunk, plan.since(first));
    }
  }
  for (int distance = 1; distance < hosts; ++distance) {
    const int to = carrier(grouping, (home + distance) % hosts, problem.rank);
    for (int chunk = 0; portions[problem.rank].slice.count > 0 && chunk < chunks; ++chunk) {
      const Operand result =
          result_of(problem, problem.rank, portions[problem.rank], chunks, chunk);
      plan.send(to, result)
          .after(brought[problem.rank][chunk])
          .behind(exchange.behind(hosts - 1 + distance, chunk));
    }
  }
  return brought;
}

}  // namespace

std::vector<Portion> slice_a_rank(const Problem& problem) {
  std::vector<Portion> portions;
  for (int owner = 0; owner < problem.ranks(); ++owner) {
    portions.push_back({.slice = slice(problem.count, problem.ranks(), owner)});
  }
  return portions;
}

std::vector<Portion> block_a_rank(const Problem& problem) {
  std::vector<Portion> portions;
  for (int owner = 0; owner < problem.ranks(); ++owner) {
    portions.push_back({.block = owner, .slice = {.count = problem.count}});
  }
  return portions;
}

Operand chunk_of(const Problem& problem, int rank, const Portion& portion, int chunks, int chunk) {
  return piece_of(piece_of(input_of(problem, rank, portion.block), portion.slice),
                  slice(portion.slice.count, chunks, chunk));
}

IndexRange share_inputs(const Problem& problem, Plan& plan, const std::vector<Portion>& portions) {
  const Grouping& grouping = *problem.grouping;
  if (grouping.members(home_of(problem)).size() == 1) {
    return {};
  }
  const std::uint32_t first = plan.next_index();
  for (int owner = 0; owner < problem.ranks(); ++owner) {
    const bool read_by_peers = carrier(grouping, home_of(problem), owner) != problem.rank;
    if (read_by_peers && portions[owner].slice.count > 0) {
      plan.share(chunk_of(problem, problem.rank, portions[owner], 1, 0));
    }
  }
  plan.signal();
  return plan.since(first);
}

// Of a reduce only the root knows the output's type, so that must not count here.
std::size_t widest_of_reducing(const Problem& problem) {
  const Grouping& grouping = *problem.grouping;
  std::size_t widest = 0;
  for (int host = 0; host < grouping.hosts(); ++host) {
    for (const RankRange& range : grouping.subtrees(host)) {
      widest = std::max(widest, partial_size(problem, range));
    }
  }
  return widest;
}

// Every rank has to cut all messages into as many chunks, so the longest that any of them may have
// decides.
PairwiseExchange exchange_of(const Problem& problem, const std::vector<Portion>& portions,
                             std::size_t size, int trips) {
  std::size_t largest = 0;
  for (const Portion& portion : portions) {
    largest = std::max(largest, portion.slice.count);
  }
  const int others = problem.grouping->hosts() - 1;
  return PairwiseExchange(*problem.grouping, trips * others, others == 0 ? 0 : largest * size);
}

// Receives come first, so that all are posted when the first partial leaves.
Reduced reduce_to_owners(const Problem& problem, Plan& plan, const std::vector<Portion>& portions,
                         const Operand& result, PairwiseExchange& exchange) {
  const Grouping& grouping = *problem.grouping;
  const Portion& mine = portions[problem.rank];
  const int chunks = exchange.chunks();
  const IndexRange sharing = share_inputs(problem, plan, portions);
  Reduced reduced{.left = std::vector<std::vector<IndexRange>>(portions.size())};

  std::vector<std::vector<Source>> terms;
  std::vector<IndexRange> arrivals;
  for (int chunk = 0; mine.slice.count > 0 && chunk < chunks; ++chunk) {
    const std::uint32_t first = plan.next_index();
    terms.push_back(gather_terms(problem, plan, mine, exchange, chunk, sharing));
    arrivals.push_back(plan.next_index() > first ? plan.since(first) : sharing);
  }
  for (int distance = 1; distance < grouping.hosts(); ++distance) {
    const int host = (home_of(problem) + distance) % grouping.hosts();
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int owner : owners_served(problem, portions, host)) {
        reduced.left[owner].push_back(send_partials(problem, plan, owner, portions[owner], exchange,
                                                    distance, chunk, sharing));
      }
    }
  }
  reduced.result = plan.next_index();
  for (std::size_t chunk = 0; chunk < terms.size(); ++chunk) {
    const Slice piece = slice(mine.slice.count, chunks, static_cast<int>(chunk));
    const std::uint32_t needs = local_ranks(problem).size() > 1 ? 1 : 0;
    plan.reduce(terms[chunk], piece_of(result, piece), needs).after(arrivals[chunk]);
  }
  return reduced;
}

Cost cost_of_reducing(const Problem& problem, const std::vector<Portion>& portions) {
  const Grouping& grouping = *problem.grouping;
  const std::size_t mine = portions[problem.rank].slice.count;
  const std::size_t peers = local_ranks(problem).size() - 1;
  std::size_t elsewhere_size = 0, carried = 0;
  for (int host = 0; host < grouping.hosts(); ++host) {
    if (host == home_of(problem)) {
      continue;
    }
    elsewhere_size += partials_size(problem, host);
    for (int owner : owners_served(problem, portions, host)) {
      carried += portions[owner].slice.count;
    }
  }
  const int pulls = peers > 0 ? 1 : 0, receives = grouping.hosts() > 1 ? 1 : 0;
  return {.rounds = std::max(carried > 0 ? pulls + 1 : 0, mine > 0 ? receives + pulls : 0),
          .bytes_sent = partials_size(problem, home_of(problem)) * carried,
          .bytes_received = elsewhere_size * mine,
          .bytes_pulled = peers * (mine + carried) * size_of(problem.input)};
}

// One signal for each chunk, so that peers pull it while the next one travels.
void spread_results(const Problem& problem, Plan& plan, const std::vector<Portion>& portions,
                    const Reduced& reduced, PairwiseExchange& exchange) {
  const Grouping& grouping = *problem.grouping;
  const int home = grouping.host_of(problem.rank), chunks = exchange.chunks();
  std::vector<int> held, elsewhere;
  for (int owner = 0; owner < problem.ranks(); ++owner) {
    if (portions[owner].slice.count == 0) {
      continue;
    }
    (carrier(grouping, home, owner) == problem.rank ? held : elsewhere).push_back(owner);
  }
  const auto brought = exchange_results(problem, plan, portions, reduced, exchange);
  if (grouping.members(home).size() == 1) {
    return;
  }
  std::uint32_t first = held.empty() ? 0 : plan.next_index();
  std::vector<IndexRange> signals;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (int owner : held) {
      const Operand result = result_of(problem, problem.rank, portions[owner], chunks, chunk);
      plan.share(result).after(brought[owner][chunk]);
    }
    const IndexRange before = plan.since(first);
    const AddedStep signal = plan.signal().after(before);
    signals.push_back(signal.alone());
    first = signal;
  }
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (int owner : elsewhere) {
      const int holder = carrier(grouping, home, owner);
      plan.copy(result_of(problem, holder, portions[owner], chunks, chunk),
                result_of(problem, problem.rank, portions[owner], chunks, chunk),
                static_cast<std::uint32_t>(chunk) + 2)
          .after(signals[chunk]);
    }
  }
}

Cost cost_of_spreading(const Problem& problem, const std::vector<Portion>& portions,
                       const Cost& reducing, const Chains& chains) {
  const Grouping& grouping = *problem.grouping;
  const std::size_t mine = portions[problem.rank].slice.count;
  const auto other_hosts = static_cast<std::size_t>(grouping.hosts() - 1);
  std::size_t held = 0;
  for (int owner = 0; owner < problem.ranks(); ++owner) {
    const bool carries = carrier(grouping, home_of(problem), owner) == problem.rank;
    held += carries ? portions[owner].slice.count : 0;
  }
  const int received = held > mine ? chains.left + 1 : 0;
  const int sent = mine > 0 && other_hosts > 0 ? chains.result + 1 : 0;
  const int pulled = held < problem.count ? std::max(chains.result, received) + 1 : 0;
  const std::size_t size = size_of(problem.output);
  return {.rounds = std::max({reducing.rounds, sent, received, pulled}),
          .bytes_sent = reducing.bytes_sent + other_hosts * mine * size,
          .bytes_received = reducing.bytes_received + (held - mine) * size,
          .bytes_pulled = reducing.bytes_pulled + (problem.count - held) * size};
}

}  // namespace sprat::collectives
