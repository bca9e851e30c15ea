// Flat broadcast: the root serves one rank of every other host.
//
// The root shares its input with its own host and sends it to the carrier of each other host. A
// carrier shares what it has received, and its host's ranks pull it.
//
// Cost: 1 round on the root's host, 2 on the others; the root sends the payload once per other
// host. Use: one host; between hosts, small payloads.
#include "collectives/patterns/peers.hpp"
#include "collectives/plan/algorithm.hpp"

namespace sprat::collectives {

namespace {

bool fits(const Problem&) { return true; }

void plan(const Problem& p, Plan& plan) {
  if (p.count == 0) {
    return;
  }
  const Grouping& grouping = *p.grouping;
  const int home = grouping.host_of(p.rank);
  const int source = carrier(grouping, home, p.root);
  const bool at_root = grouping.together(p.rank, p.root);
  const Operand local_copy = at_root ? input_of(p, source) : output_of(p, source);
  if (p.rank != source) {
    plan.copy(local_copy, output_of(p, p.rank), 1);
    return;
  }
  if (!at_root) {
    plan.recv(p.root, local_copy);
  }
  plan.next_round();
  if (grouping.members(home).size() > 1) {
    plan.share(local_copy);
    plan.signal();
  }
  for (int host = 0; at_root && host < grouping.hosts(); ++host) {
    if (host != home) {
      plan.send(carrier(grouping, host, p.root), local_copy);
    }
  }
}

Cost cost(const Problem& p) {
  const Grouping& grouping = *p.grouping;
  const std::size_t bytes = p.count * size_of(p.input);
  const auto other_hosts = static_cast<std::size_t>(grouping.hosts() - 1);
  if (bytes == 0) {
    return {};
  }
  if (p.rank == p.root) {
    return {.rounds = other_hosts > 0 ? 1 : 0, .bytes_sent = other_hosts * bytes};
  }
  const bool leads = p.rank == carrier(grouping, grouping.host_of(p.rank), p.root);
  return leads ? Cost{.rounds = 1, .bytes_received = bytes}
               : Cost{.rounds = 1, .bytes_pulled = bytes};
}

}  // namespace

extern const Algorithm broadcast_flat = {
    .collective = Collective::broadcast,
    .name = "flat",
    .summary = "The root serves one rank of each host: one host, or small payloads.",
    .order = ReduceOrder::canonical,
    .fits = fits,
    .plan = plan,
    .cost = cost,
};

}  // namespace sprat::collectives
