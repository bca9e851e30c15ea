// Pipelined chain: chunks travel from host to host, each passed on as soon as it has come.
//
// Hosts stand in a line from the root's on. One rank leads each: it receives chunk after chunk from
// the leader before it, sends each on to the next, and shares it. The ranks of a host pull the
// chunks that theirs has while later ones travel. With many chunks all wires of the line are busy
// at once, and the time is that of one passage of the payload, and of one chunk for each further
// host.
//
// Cost: as many messages as chunks, at once per link; the payload enters and leaves each host once.
// Use: several hosts and payloads of several chunks.
#include <algorithm>

#include "collectives/patterns/pairwise_exchange.hpp"
#include "collectives/patterns/peers.hpp"
#include "collectives/plan/algorithm.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem&) { return true; }

// Several even of a payload that is one chunk elsewhere: a chain's last host waits for all before
// it.
constexpr std::size_t least_chunk_bytes = 8 * 1024;
constexpr int least_chunks = 8;

int chunks_of(const Problem& p) {
  const std::size_t bytes = p.count * size_of(p.input);
  const auto few = static_cast<int>(std::min<std::size_t>(bytes / least_chunk_bytes, least_chunks));
  return std::max({1, few, collectives::chunks_of(*p.grouping, bytes)});
}

/// The rank that has the data on the host `distance` hosts down the chain.
int leader(const Problem& p, int distance) {
  const Grouping& grouping = *p.grouping;
  return carrier(grouping, (grouping.host_of(p.root) + distance) % grouping.hosts(), p.root);
}

/// How far down the chain this rank's host is.
int distance_of(const Problem& p) {
  const Grouping& grouping = *p.grouping;
  const int hosts = grouping.hosts();
  return (grouping.host_of(p.rank) - grouping.host_of(p.root) + hosts) % hosts;
}

void plan_root(const Problem& p, Plan& plan) {
  const Grouping& grouping = *p.grouping;
  const Operand whole = input_of(p, p.rank);
  if (grouping.members(grouping.host_of(p.rank)).size() > 1) {
    plan.share(whole);
    plan.signal();
  }
  if (grouping.hosts() == 1) {
    return;
  }
  plan.next_lane();
  for (int chunk = 0; chunk < chunks_of(p); ++chunk) {
    plan.send(leader(p, 1), piece_of(whole, slice(p.count, chunks_of(p), chunk)));
  }
}

// All receives first, then the sends, then the signals: so that a signal's range of predecessors is
// its chunk's share and the signal before it, and a send's is its receive.
void plan_leader(const Problem& p, Plan& plan) {
  const Grouping& grouping = *p.grouping;
  const int chunks = chunks_of(p), distance = distance_of(p);
  const Operand whole = output_of(p, p.rank);
  const auto piece = [&](int chunk) { return piece_of(whole, slice(p.count, chunks, chunk)); };
  std::vector<IndexRange> arrival;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    arrival.push_back(plan.recv(leader(p, distance - 1), piece(chunk)).alone());
  }
  for (int chunk = 0; distance + 1 < grouping.hosts() && chunk < chunks; ++chunk) {
    plan.send(leader(p, distance + 1), piece(chunk)).after(arrival[chunk]);
  }
  if (grouping.members(grouping.host_of(p.rank)).size() == 1) {
    return;
  }
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const std::uint32_t share = plan.share(piece(chunk)).after(arrival[chunk]);
    const std::uint32_t first = chunk == 0 ? share : share - 1;  // the signal before
    plan.signal().after({first, share + 1});
  }
}

void plan_follower(const Problem& p, Plan& plan) {
  const int source = leader(p, distance_of(p));
  if (source == p.root) {
    plan.copy(input_of(p, source), output_of(p, p.rank), 1);
    return;
  }
  for (int chunk = 0; chunk < chunks_of(p); ++chunk) {
    const Slice piece = slice(p.count, chunks_of(p), chunk);
    plan.copy(piece_of(output_of(p, source), piece), piece_of(output_of(p, p.rank), piece),
              static_cast<std::uint32_t>(chunk) + 1);
  }
}

void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) {
    return;
  }
  if (p.rank == p.root) {
    plan_root(p, plan);
  } else if (p.rank == leader(p, distance_of(p))) {
    plan_leader(p, plan);
  } else {
    plan_follower(p, plan);
  }
}

Cost cost(const Problem& p) {
  const std::size_t bytes = p.count * size_of(p.input);
  if (bytes == 0) {
    return {};
  }
  const bool leads = p.rank == leader(p, distance_of(p));
  const bool sends = leads && distance_of(p) + 1 < p.grouping->hosts();
  const bool receives = leads && p.rank != p.root;
  return {.rounds = (leads ? 0 : 1) + (sends ? 1 : 0) + (receives ? 1 : 0),
          .bytes_sent = sends ? bytes : 0,
          .bytes_received = receives ? bytes : 0,
          .bytes_pulled = leads ? 0 : bytes};
}

}  // namespace

extern const Algorithm broadcast_chain = {
    .collective = Collective::broadcast,
    .name = "chain",
    .summary = "Chunks pipelined from host to host: several hosts, large payloads.",
    .order = ReduceOrder::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
