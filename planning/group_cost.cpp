// Curves of simulated times, and the line beyond what is simulated.
#include "planning/group_cost.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>

#include "collectives/plan/planner.hpp"
#include "collectives/simulate/simulator.hpp"

namespace sprat::planning {
namespace {

using collectives::Collective;
using collectives::Machine;

constexpr double micro = 1e-6;
// From where latency rules to where only rates do; units of large models lie between.
constexpr double sampled_bytes[] = {64.0 * 1024, 4.0 * (1 << 20), 512.0 * (1 << 20)};

/// What is left of a host's rails for one of the groups on it. Fewer than one is a slower one.
Machine share_of(const TrainingMachine& machine, int groups) {
  Machine one = machine.network;
  one.pull_GBps *= TrainingMachine::wire_share;
  one.link_GBps *= TrainingMachine::wire_share;
  one.rail_GBps *= TrainingMachine::wire_share;
  // Two GPUs of p4d share a rail: then a group has half of one. Where there are more rails than
  // groups, each has whole ones, a little faster if they do not divide.
  if (groups >= one.rails) {
    one.rail_GBps *= static_cast<double>(one.rails) / groups;
    one.rails = 1;
  } else {
    one.rail_GBps *= one.rails / (static_cast<double>(groups) * (one.rails / groups));
    one.rails /= groups;
  }
  return one;
}

/// How many of a buffer's bytes pass a rank: (p - 1) / p of them, all_reduce's twice, which is the
/// same in both of the ranks that are compared.
double passing(int ranks) { return (ranks - 1.0) / ranks; }

}  // namespace

GroupCost::GroupCost(const TrainingMachine& machine)
    : machine_(machine),
      rules_(collectives::parse_rules(collectives::default_rules(), "default")) {}

/// The measurement of the number of ranks that is nearest: latencies grow with it.
const MeasuredCollective* GroupCost::measured(Collective collective, int ranks) const {
  const MeasuredCollective* nearest = nullptr;
  for (const MeasuredCollective& one : machine_.measured.collectives) {
    const bool closer =
        nearest == nullptr || std::abs(one.ranks - ranks) < std::abs(nearest->ranks - ranks);
    if (one.collective == collective && one.ranks > 1 && closer) {
      nearest = &one;
    }
  }
  return nearest;
}

double GroupCost::seconds(Collective collective, const GroupPlace& place, double bytes) {
  if (place.ranks <= 1 || bytes <= 0) {
    return 0;
  }
  if (const MeasuredCollective* line = measured(collective, place.ranks)) {
    return line->seconds +
           line->seconds_per_byte * bytes * passing(place.ranks) / passing(line->ranks);
  }
  // Half as many have wires, too: from one host to two would be no doubling of anything.
  const auto many = static_cast<unsigned>(most_simulated / place.per_host);
  const int most_hosts = std::max(4, static_cast<int>(std::bit_floor(many)));
  if (place.hosts <= most_hosts) {
    return simulated(collective, place.hosts, place.per_host, place.groups_per_host, bytes);
  }
  const double whole =
      simulated(collective, most_hosts, place.per_host, place.groups_per_host, bytes);
  const double half =
      simulated(collective, most_hosts / 2, place.per_host, place.groups_per_host, bytes);
  // Trees and rings of hosts grow by a message for each doubling once rails are full.
  const double doublings = std::log2(static_cast<double>(place.hosts) / most_hosts);
  return whole + std::max(0.0, whole - half) * doublings;
}

double GroupCost::simulated(Collective collective, int hosts, int per_host, int groups,
                            double bytes) {
  const Curve& known = curve(collective, hosts, per_host, groups);
  // Below the first size the latency is what there is; beyond the last the last rate goes on.
  std::size_t upper = 1;
  while (upper + 1 < known.bytes.size() && bytes > known.bytes[upper]) {
    ++upper;
  }
  const double from = known.bytes[upper - 1], to = known.bytes[upper];
  const double part = (std::max(bytes, known.bytes.front()) - from) / (to - from);
  return known.seconds[upper - 1] + part * (known.seconds[upper] - known.seconds[upper - 1]);
}

const GroupCost::Curve& GroupCost::curve(Collective collective, int hosts, int per_host,
                                         int groups) {
  const Key key{collective, hosts, per_host, groups};
  if (const auto found = curves_.find(key); found != curves_.end()) {
    return found->second;
  }
  std::vector<int> host_of;
  for (int rank = 0; rank < hosts * per_host; ++rank) {
    host_of.push_back(rank / per_host);
  }
  const auto grouping = std::make_shared<collectives::Grouping>(host_of);
  const Machine machine = share_of(machine_, groups);
  // In f32, whatever travels: the simulator's time goes by bytes, and a reduction's by those of
  // f32.
  Curve made;
  for (const double bytes : sampled_bytes) {
    const auto elements = static_cast<std::size_t>(bytes) / sizeof(float);
    const std::size_t parts =
        collective == Collective::all_reduce ? 1 : static_cast<std::size_t>(grouping->ranks());
    const collectives::Problem problem{.collective = collective,
                                       .grouping = grouping,
                                       .count = std::max<std::size_t>(1, elements / parts),
                                       .input = DType::f32,
                                       .output = DType::f32};
    made.bytes.push_back(bytes);
    made.seconds.push_back(
        collectives::simulate(problem, collectives::choose(problem, rules_), machine).seconds);
  }
  return curves_.emplace(key, std::move(made)).first->second;
}

double GroupCost::message_latency(const GroupPlace& place) const {
  const Machine& machine = machine_.network;
  return (place.hosts > 1 ? machine.wire_us + machine.message_us : machine.signal_us) * micro;
}

/// All groups of the axis send at the same time, as stages of all replicas do.
double GroupCost::message_seconds_per_byte(const GroupPlace& place) const {
  const Machine one = share_of(machine_, place.groups_per_host);
  const double GBps = place.hosts > 1 ? one.rails * one.rail_GBps : one.pull_GBps;
  return 1 / (GBps * giga);
}

}  // namespace sprat::planning
