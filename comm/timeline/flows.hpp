// Arrows between events of two ranks, and which of them have both ends.
#pragma once

#include <cstdint>
#include <vector>

namespace sprat::comm::timeline {

struct Flows {
  std::vector<std::uint64_t> paired;  ///< The events' numbers, ascending.
  std::uint64_t alone = 0;  ///< Numbers with one end: the other one was dropped, or never came.

  /// The arrow's own number, from 1 on; 0: it has not both ends.
  std::uint64_t arrow_of(std::uint64_t number) const;
};

/// One event that sends and one that receives make a pair. In any order: the numbers of those that
/// send, and of those that receive.
Flows pair_flows(std::vector<std::uint64_t> sent, std::vector<std::uint64_t> received);

}  // namespace sprat::comm::timeline
