// The states that a unit's parameters and its gradient go through, and the moves between them.
#pragma once

#include <cstdint>

#include "comm/base/check.hpp"

namespace sprat::fsdp {

/// A unit's parameters on one rank. A row that keeps them whole has no gathers: theirs are never
/// `gathering` or `full`, and are usable in `kept`.
enum class ParameterState : std::uint8_t {
  kept,        ///< What stays between uses is current, and nothing is under way.
  refreshing,  ///< Updated parts of other ranks are on their way into what is kept.
  gathering,   ///< All shards are on their way into a slot.
  full,        ///< The slot holds all parameters.
};

/// A unit's gradient on one rank, within a step.
enum class GradientState : std::uint8_t {
  none,             ///< Nothing of this step has come.
  written,          ///< The caller writes and adds.
  first_sum,        ///< The sum over the first axis is under way.
  between_sums,     ///< Kept are sums of earlier micro-steps; another micro-step follows.
  sum_of_replicas,  ///< The last micro-step's second sum is under way.
  summed,           ///< What the update reads.
};

const char* name(ParameterState state);
const char* name(GradientState state);
/// The moves there are; all others are mistakes of this library.
bool may_follow(ParameterState from, ParameterState to);
bool may_follow(GradientState from, GradientState to);

/// A state that changes here and nowhere else.
template <class Enum>
class State {
 public:
  bool is(Enum state) const { return now_ == state; }
  /// Throws Error{internal} if there is no such move.
  void move_to(Enum next) {
    if (!may_follow(now_, next)) {
      throw Error(ErrorCode::internal,
                  text("a unit that is ", name(now_), " cannot become ", name(next)));
    }
    now_ = next;
  }

 private:
  Enum now_ = Enum{};
};

}  // namespace sprat::fsdp
