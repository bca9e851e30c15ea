// Which host asks which for the time of rank 0's clock.
//
// Idea: a host that has asked can answer others, so that the hosts that know double in each round.
// But what a host is told is as wrong as what its answerer was told and half of a round trip more.
// So the tree is as flat as it may be: hosts that all ask rank 0's while they are at most 9, and
// one more in between each time they are 9 times as many.
// Cost: less than 9 rounds for each host in between; the bound is the sum of one for each of them.
#pragma once

#include <vector>

namespace sprat::comm::timeline {

/// Hosts by number; 0 is rank 0's.
struct ClockQuestion {
  int asks = 0, answers = 0;
  friend bool operator==(const ClockQuestion&, const ClockQuestion&) = default;
};
/// Every host but 0 asks once, a host that knows since an earlier round. In a round a host takes
/// part in one question at most, so that none waits while its answer is timed.
std::vector<std::vector<ClockQuestion>> clock_rounds(int hosts);

}  // namespace sprat::comm::timeline
