// Messages between many hosts in an order in which they do not crowd: at any time each host sends
// to one other and receives from one other.
//
// Turn (distance, chunk) is a chunk to the host `distance` further on and one from the host as far
// back; turns go by distance, then by chunk. A rank sends in a turn only once all that it receives
// in the turn `at_once` before has come; one of a pair waits for none. That cannot lock up whatever
// ranks have to send: what comes in a turn waits for earlier turns only.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/plan/plan.hpp"
#include "collectives/plan/problem.hpp"

namespace sprat::collectives {

/// Whether there are two hosts of one rank each: a message between them crowds no other, and nobody
/// pulls it or passes it on while it comes.
bool is_pair(const Grouping& grouping);
/// Chunks that a message between hosts is cut into, so that one travels while another is worked on.
int chunks_of(const Grouping& grouping, std::size_t bytes);

class PairwiseExchange {
 public:
  /// `bytes` a message has before it is cut.
  PairwiseExchange(const Grouping& grouping, int distances, std::size_t bytes);

  int chunks() const { return chunks_; }
  /// These steps receive what comes in a turn. Distances count from 1.
  void arrives(int distance, int chunk, IndexRange receives);
  /// What a send of that turn goes behind.
  IndexRange behind(int distance, int chunk) const;
  /// What work on that turn's message goes behind, so that no rank works on more than it sends
  /// soon.
  IndexRange work_behind(int distance, int chunk) const;

 private:
  std::size_t number(int distance, int chunk) const;
  IndexRange arrival_before(std::size_t turn, std::size_t turns) const;

  int chunks_;
  std::size_t at_once_;
  std::vector<IndexRange> arrivals_;
};

}  // namespace sprat::collectives
