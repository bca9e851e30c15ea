// Which units to gather and free as the declared visits go by.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "sprat/fsdp.hpp"

namespace sprat::fsdp {

/// What to do before a visited unit is used: first drop, then gather, both in this order.
struct VisitActions {
  std::vector<int> drop;    ///< Gathered for visits that did not come.
  std::vector<int> gather;  ///< The visited unit first if it is not full, then the ones ahead.
};

/// The declared order of a training step.
struct Visits {
  std::vector<std::string> units;    ///< Names, for messages.
  std::vector<Visit> step = {};      ///< FsdpOptions::visits.
  std::vector<int> evaluation = {};  ///< FsdpOptions::evaluation.
  int ahead = 1;                     ///< Units that are full beside the one in use,
  /// while all that is full has at most so many elements; `elements` is by unit, empty: none count.
  std::size_t max_live = ~std::size_t{0};
  std::vector<std::size_t> elements = {};
  int micro_steps = 1;  ///< Micro-batches of a step.
  /// By unit, the one whose parameters it uses: itself or, if it is tied, another; empty: itself.
  std::vector<int> values_of = {};
  /// The last units that no visit names: what they keep is whole, and their gradients are summed at
  /// the end of a step.
  int unvisited = 0;

  int visited() const { return static_cast<int>(units.size()) - unvisited; }
};

/// By visit of `order`: the last of its micro-batch that adds to that unit's gradient. Throws
/// Error{invalid_argument} naming a unit and a micro-batch without any.
std::vector<bool> last_backwards(const Visits& order);

/// A state machine over visits: says which gathers to issue at each acquire, and what to keep at
/// each release. A visit that reads no values changes nothing of either. Pure: it only counts. Any
/// number of evaluations, then a step. Which of both it is may show late, where they begin alike;
/// until then both are followed, and gathers are the step's. Nothing is gathered beyond the end of
/// a step, since the parameters change there.
///
/// What is gathered and dropped are units with parameters of their own. A visit of a tied unit is
/// one of the unit it is tied to.
///
/// Invariant: a unit is full from its place in a `gather` until its `drop` or a true release(), and
/// units that nobody holds are full only if they are among the next 1 + ahead that are visited.
class GatherSchedule {
 public:
  /// Throws Error{invalid_argument} if a visit names no unit or no micro-batch.
  explicit GatherSchedule(Visits order);
  /// With the defaults filled in.
  const Visits& declared() const { return order_; }

  /// Begins anew with nothing full. Returns the gathers to issue ahead of the first visit.
  std::vector<int> restart();
  /// Throws Error{invalid_argument} naming expected and got if `unit` is not visited next.
  VisitActions acquire(int unit);
  /// True if the unit, or the one it is tied to, is to be freed now. Throws Error{invalid_argument}
  /// if it is not acquired.
  bool release(int unit);

  /// Units that the next acquire() will gather.
  std::vector<int> upcoming() const;
  /// What the last acquire() was, most likely; nothing if none came or it was an evaluation's.
  std::optional<Visit> visit() const;
  bool acquired(int unit) const { return held_[unit] > 0; }
  /// Some visit of the unit that is under way reads its values, or may.
  bool reads(int unit) const { return held_[unit] > unread_[unit]; }
  bool full(int unit) const { return full_[values_of(unit)]; }
  /// True if a step may end here: no unit is held, and no step or evaluation is half done.
  bool between_passes() const;
  /// Names of the units that may be visited next, joined by " or ".
  std::string expected() const;

 private:
  int values_of(int unit) const { return order_.values_of[static_cast<std::size_t>(unit)]; }
  /// Places in path_ that the next visit may be at, if the last one was at `place`.
  std::vector<int> choices(int place) const;
  std::vector<int> choices() const;
  /// The likeliest place after that one; none after a step.
  int next(int place) const;
  /// The likeliest place after that one whose visit reads values; none after a step.
  int next_reader(int place) const;
  /// The unit whose parameters are likeliest used next, or none.
  int next_unit() const;
  /// Those that are to be full: `used` (none: nobody's), and of the next as many as fit.
  std::vector<int> wanted(int used) const;
  std::vector<int> gather_missing(const std::vector<int>& units);

  Visits order_;
  std::vector<int> path_;    // units of a step's visits, then of an evaluation's
  std::vector<bool> reads_;  // by place in path_: its visit needs values
  std::vector<int> places_;  // where in path_ the last visit may have been: likeliest first
  std::vector<int> held_;    // acquires without release, by unit
  std::vector<int> unread_;  // those of them that read no values
  std::vector<int> used_;    // the others, by the unit that has the parameters
  std::vector<bool> full_;
};

}  // namespace sprat::fsdp
