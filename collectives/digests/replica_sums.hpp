// Whether ranks that must hold the same have got the same so far: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/status/call_log.hpp"

namespace sprat::collectives::digests {

using ReplicaSum = comm::status::CallLog::Replicas;

/// So many communicators of a rank are compared; more are left to sprat diff.
inline constexpr std::size_t most_compared = 16;

/// Ranks of a communicator have different results in calls that give all the same.
struct ReplicaFault {
  std::vector<int> wrong;  ///< The fewest that differ from most; with two ranks, both.
  std::vector<int> right;
  std::uint64_t calls = 0;
};
/// `sums` has most_compared entries of each rank, one rank after the other; entries without calls
/// are none. Ranks that have made a different number of calls, which may happen where calls are
/// under way, are not compared. Nothing if all agree. The same on every rank.
std::optional<ReplicaFault> find_fault(std::span<const ReplicaSum> sums, int ranks);

}  // namespace sprat::collectives::digests
