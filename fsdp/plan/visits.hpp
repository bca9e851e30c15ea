// Which units to gather and free as the declared visits go by.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace sprat::fsdp {

/// What to do before a visited unit is used: first drop, then gather, both in this order.
struct VisitActions {
  std::vector<int> drop;    ///< Gathered for visits that did not come.
  std::vector<int> gather;  ///< The visited unit first if it is not full, then the ones ahead.
};

/// The declared order of a training step.
struct Visits {
  std::vector<std::string> units;  ///< Names, for messages.
  std::vector<int> forward, backward;
  int ahead = 1;  ///< Visits whose units are gathered ahead of the one in use,
  /// while all that is full has at most so many elements; `elements` is by unit, empty: none count.
  std::size_t max_live = ~std::size_t{0};
  std::vector<std::size_t> elements;
  int micro_steps = 1;  ///< Passes of forward and backward between two restarts.
  /// The last units that no visit names: what they keep is whole, and their gradients are summed at
  /// the end of a step.
  int unvisited = 0;

  int visited() const { return static_cast<int>(units.size()) - unvisited; }
};

/// A state machine over visits: says which gathers to issue at each acquire, and what to keep at
/// each release. Pure: it only counts. A step is forward and then backward, micro_steps times;
/// before it there may be passes of forward alone (evaluation). Nothing is gathered beyond the end
/// of a step, since the parameters change there.
///
/// Invariant: a unit is full from its place in a `gather` until its `drop` or a true release(), and
/// units that nobody holds are full only if one of the next max(1, ahead) visits uses them.
class GatherSchedule {
 public:
  /// Throws Error{invalid_argument} if a visit names no unit. An empty forward is every unit in
  /// turn, an empty backward the reverse of forward.
  explicit GatherSchedule(Visits order);
  /// With the defaults filled in.
  const Visits& declared() const { return order_; }

  /// Begins anew with nothing full. Returns the gathers to issue ahead of the first visit.
  std::vector<int> restart();
  /// Throws Error{invalid_argument} naming expected and got if `unit` is not visited next.
  VisitActions acquire(int unit);
  /// True if the unit is to be freed now. Throws Error{invalid_argument} if it is not acquired.
  bool release(int unit);

  /// Units to be gathered soon, just past those that are gathered ahead.
  std::vector<int> upcoming() const;
  bool acquired(int unit) const { return held_[unit] > 0; }
  bool full(int unit) const { return full_[unit]; }
  /// True if a step may end here: no unit is held and no pass is half done.
  bool between_passes() const;
  /// Names of the units that may be visited next, joined by " or ".
  std::string expected() const;

 private:
  /// Positions in visits_ that the next visit may be at, if the last one was before `position`.
  std::vector<int> choices(int position) const;
  std::vector<int> choices() const;
  /// Units of the next `count` visits on the likeliest path.
  std::vector<int> window(int count) const;
  /// Those that are to be full: `visited` (-1: none), and of the visits ahead as many as fit.
  std::vector<int> wanted(int visited) const;
  std::vector<int> gather_missing(const std::vector<int>& units);

  Visits order_;
  std::vector<int> visits_;     // forward, then backward, so often as there are micro-steps
  std::vector<int> positions_;  // where the next visit may be: likeliest first, never empty
  std::vector<int> held_;       // acquires without release, by unit
  std::vector<bool> full_;
};

}  // namespace sprat::fsdp
