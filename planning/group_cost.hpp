// What a collective among ranks of one axis takes, by the simulator of the plans that would run.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "collectives/plan/tuning.hpp"
#include "planning/arrangement.hpp"

namespace sprat::planning {

/// Remembers what it has simulated. One thread at a time.
class GroupCost {
 public:
  explicit GroupCost(const TrainingMachine& machine);

  /// Of a buffer of so many bytes over all ranks of the group (all_reduce: of each). Simulated at
  /// three sizes by the algorithm that the default rules choose, and between them on a line.
  /// Groups of more than `most_simulated` ranks take for each doubling of hosts what the last
  /// doubling took. A measured line goes before all of it.
  double seconds(collectives::Collective collective, const GroupPlace& place, double bytes);
  /// One message of so many bytes between neighbours of the axis.
  double message_latency(const GroupPlace& place) const;
  double message_seconds_per_byte(const GroupPlace& place) const;

  static constexpr int most_simulated = 128;

 private:
  using Key = std::tuple<collectives::Collective, int, int, int>;
  struct Curve {
    std::vector<double> bytes, seconds;
  };
  const Curve& curve(collectives::Collective collective, int hosts, int per_host, int groups);
  double simulated(collectives::Collective collective, int hosts, int per_host, int groups,
                   double bytes);
  const MeasuredCollective* measured(collectives::Collective collective, int ranks) const;

  TrainingMachine machine_;
  collectives::Rules rules_;
  std::map<Key, Curve> curves_;
};

}  // namespace sprat::planning
