// Farewells are told in lots: when a job ends, all of its ranks leave at nearly the same time, and
// each of them hears of every other.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "comm/coordinator/rendezvous.hpp"

namespace sprat::comm {

/// Who has said farewell and has not been told of. A value; knows no clock but the times it is
/// given.
class Farewells {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Of a job of so many ranks.
  explicit Farewells(int ranks);
  void said(int rank) { waiting_.push_back(rank); }
  /// Those to be told of at `now`, ascending: the first of a while at once, those that come soon
  /// after it together. Empty: nobody, or not yet.
  std::vector<int> due(Time now);
  /// Those that wait, whatever the time.
  std::vector<int> rest();
  /// When due() has something to give that it has not now.
  std::optional<Time> deadline() const;

 private:
  std::chrono::microseconds lull_;
  std::optional<Time> quiet_until_;  ///< Since the last lot.
  std::vector<int> waiting_;
};

/// What the coordinator says of a lot of one or more, ascending: of several, the payload has them.
ControlMessage farewell_of(const std::vector<int>& ranks);
/// Whom it is of, in a job of so many ranks.
std::vector<int> departing(const ControlMessage& farewell, int ranks);

}  // namespace sprat::comm
