// Two-level all-gather: every part enters each host once, and is pulled from there.
//
// On every other host one rank, the carrier, stands for an owner: the owner sends it its part, in
// chunks and in the turns of a pairwise exchange, so that no wire gets two at once. Carriers share
// each chunk as it comes and signal, and the other ranks of the host pull it while the next one
// travels. Parts of the own host are pulled straight from their owners meanwhile.
//
// Cost: 1 round between hosts, 1 inside; a rank sends its part once per other host. Use: several
// hosts.
#include "collectives/patterns/pairwise_exchange.hpp"
#include "collectives/patterns/peers.hpp"
#include "collectives/plan/algorithm.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem& p) { return !p.counts; }

bool carries(const Problem& p, int owner) {
  return carrier(*p.grouping, p.grouping->host_of(p.rank), owner) == p.rank;
}

/// A chunk of the owner's part, as `holder` has it.
Operand part_of(const Problem& p, const PairwiseExchange& exchange, int holder, int owner,
                int chunk) {
  return piece_of(output_of(p, holder, owner), slice(p.count, exchange.chunks(), chunk));
}

/// What other hosts send; by chunk, the steps that receive it. Signals afterwards are ordered with
/// the first, which is among `sharing`.
std::vector<IndexRange> receive_parts(const Problem& p, Plan& plan, PairwiseExchange& exchange,
                                      IndexRange sharing) {
  const Grouping& grouping = *p.grouping;
  const int home = grouping.host_of(p.rank), hosts = grouping.hosts();
  std::vector<IndexRange> chunks;
  for (int chunk = 0; chunk < exchange.chunks(); ++chunk) {
    const std::uint32_t begin = plan.next_index();
    for (int distance = 1; distance < hosts; ++distance) {
      const std::uint32_t first = plan.next_index();
      for (int owner : grouping.members((home + hosts - distance) % hosts)) {
        if (!carries(p, owner)) {
          continue;
        }
        plan.recv(owner, part_of(p, exchange, p.rank, owner, chunk)).after(sharing);
      }
      exchange.arrives(distance, chunk, plan.since(first));
    }
    chunks.push_back(plan.since(begin));
  }
  return chunks;
}

void send_part(const Problem& p, Plan& plan, const PairwiseExchange& exchange) {
  const Grouping& grouping = *p.grouping;
  const int home = grouping.host_of(p.rank), hosts = grouping.hosts();
  for (int distance = 1; distance < hosts; ++distance) {
    const int to = carrier(grouping, (home + distance) % hosts, p.rank);
    for (int chunk = 0; chunk < exchange.chunks(); ++chunk) {
      const Slice piece = slice(p.count, exchange.chunks(), chunk);
      plan.send(to, piece_of(input_of(p, p.rank), piece)).behind(exchange.behind(distance, chunk));
    }
  }
}

// One signal for each chunk, so that peers pull it while the next one travels.
void spread_parts(const Problem& p, Plan& plan, const PairwiseExchange& exchange,
                  const std::vector<IndexRange>& arrivals) {
  const std::vector<int> remote = remote_ranks(p);
  std::uint32_t before = 0;
  std::vector<IndexRange> signals;
  for (int chunk = 0; chunk < exchange.chunks(); ++chunk) {
    const std::uint32_t first = plan.next_index();
    for (int rank : remote) {
      if (!carries(p, rank)) {
        continue;
      }
      plan.share(part_of(p, exchange, p.rank, rank, chunk)).after(arrivals[chunk]);
    }
    const bool shares = plan.next_index() > first;
    const IndexRange earlier = plan.since(chunk > 0 ? before : shares ? first : 0);
    const AddedStep signal = plan.signal().after(earlier);
    before = signal;
    signals.push_back(signal.alone());
  }
  for (int chunk = 0; chunk < exchange.chunks(); ++chunk) {
    for (int rank : remote) {
      if (carries(p, rank)) {
        continue;
      }
      const int holder = carrier(*p.grouping, p.grouping->host_of(p.rank), rank);
      plan.copy(part_of(p, exchange, holder, rank, chunk),
                part_of(p, exchange, p.rank, rank, chunk), static_cast<std::uint32_t>(chunk) + 2)
          .after(signals[chunk]);
    }
  }
}

void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) {
    return;
  }
  const std::vector<int> local = local_ranks(p);
  const int others = p.grouping->hosts() - 1;
  IndexRange sharing;
  if (local.size() > 1) {
    plan.share(input_of(p, p.rank));
    plan.signal();
    sharing = plan.since(0);
  }
  if (others > 0) {
    PairwiseExchange exchange(*p.grouping, others, p.count * size_of(p.input));
    const std::vector<IndexRange> arrivals = receive_parts(p, plan, exchange, sharing);
    send_part(p, plan, exchange);
    if (local.size() > 1) {
      spread_parts(p, plan, exchange, arrivals);
    }
  }
  plan.next_lane();
  for (int rank : local) {
    plan.copy(input_of(p, rank), output_of(p, p.rank, rank), rank == p.rank ? 0 : 1);
  }
}

Cost cost(const Problem& p) {
  if (p.count == 0) {
    return {};
  }
  const std::size_t part_bytes = p.count * size_of(p.input);
  std::size_t carried = 0, pulled = 0;
  for (int rank : remote_ranks(p)) {
    ++(carries(p, rank) ? carried : pulled);
  }
  const std::size_t peers = local_ranks(p).size() - 1;
  const auto other_hosts = static_cast<std::size_t>(p.grouping->hosts() - 1);
  return {.rounds = other_hosts > 0 ? (pulled > 0 ? 2 : 1) : (peers > 0 ? 1 : 0),
          .bytes_sent = other_hosts * part_bytes,
          .bytes_received = carried * part_bytes,
          .bytes_pulled = (pulled + peers) * part_bytes};
}

}  // namespace

extern const Algorithm all_gather_hierarchical = {
    .collective = Collective::all_gather,
    .name = "hierarchical",
    .summary = "Each part once to every host, then pulled inside it: several hosts.",
    .order = ReduceOrder::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
