// What is done about a call that takes long: it is reported, warned of, and ended at its deadline,
// with the names of those it waits for.
//
// Reads no clock: whoever drives the call tells it the time now and then.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "collectives/engine/stragglers.hpp"
#include "comm/context/wait_policy.hpp"
#include "sprat/error.hpp"

namespace sprat::collectives {

/// A message that a wire could not deliver: it never will.
struct WireFailure {
  comm::Clock::time_point since{};
  int world_rank = -1, error = 0;
  bool sends = false;
};

/// A peer's memory that could not be had.
struct Unmapped {
  int world_rank;
  int error;  ///< As errno.
};

/// The call that a rank carries out, and the ranks that it has to do with, as its watch sees them.
/// World ranks throughout, ascending.
class WatchedCall {
 public:
  virtual ~WatchedCall() = default;

  struct Times {
    comm::Clock::time_point posted{};
    comm::Clock::time_point since{};  ///< It has had this rank to itself.
    comm::Clock::time_point deadline{};
    std::chrono::milliseconds timeout{0};
  };
  virtual Times times() const = 0;
  /// "all_reduce of 4 f32, sum (operation 3 of world)".
  virtual std::string words() const = 0;
  virtual std::string name_of(int rank) const = 0;
  /// Null while all messages may yet arrive.
  virtual const WireFailure* wire_failure() const = 0;

  /// Ranks that have not called it, as far as this rank knows.
  virtual std::vector<int> late() const = 0;
  /// Ranks that do not even answer those who asked.
  virtual std::vector<int> silent() const = 0;
  /// Ranks that it waits for now, whether they have called it or not.
  virtual std::vector<int> awaited() const = 0;
  /// The rank has left the job in good order.
  virtual bool departed(int rank) const = 0;
  /// No lower rank of this host waits for the same, so that this one speaks for all.
  virtual bool speaks_for_host() const = 0;

  /// Shows on the status page whom it waits for; the first `late` have not called it.
  virtual void show(const std::vector<int>& ranks, std::size_t late) = 0;
  /// Has all ranks compare what they called.
  virtual void report() = 0;
  /// Has those looked for of whom messages do not come.
  virtual void search() = 0;
};

/// Of one call at a time. Throws nothing but what ends the call.
class StallWatch final {
 public:
  /// After how long a warning names those who are late; 0: never.
  explicit StallWatch(std::chrono::milliseconds warn_after) : stragglers_(warn_after) {}

  /// The call has moved.
  void moved() { stuck_since_ = unmapped_since_ = {}; }
  /// It has not, for a while. Throws the Error that ends it.
  void look(WatchedCall& call, comm::Clock::time_point now);
  /// Reports the call now: a peer shows another one, and the coordinator finds the two and fails
  /// every rank.
  void report(WatchedCall& call, comm::Clock::time_point now);
  bool reported() const { return reported_ != comm::Clock::time_point{}; }
  /// A peer's memory cannot be had. The Error that ends the call, if it has lasted too long.
  std::optional<Error> misses(const WatchedCall& call, const Unmapped& memory,
                              comm::Clock::time_point now);
  /// It is over. `now` is when.
  void end(const WatchedCall& call, comm::Clock::time_point now);

 private:
  void watch_peers(WatchedCall& call, comm::Clock::time_point now);
  void look_for_the_gone(WatchedCall& call, comm::Clock::time_point now);
  void tell_who_came(const WatchedCall& call, comm::Clock::time_point now,
                     const std::vector<int>& ranks) const;

  Stragglers stragglers_;
  comm::Clock::time_point watched_{}, reported_{}, stuck_since_{}, unmapped_since_{};
  int unmapped_error_ = 0;               ///< Why, at first; as errno.
  std::chrono::seconds next_search_{0};  ///< After stuck_since_.
  bool timed_out_ = false;               ///< Reported for that reason.
};

}  // namespace sprat::collectives
