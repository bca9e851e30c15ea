// Which steps of a plan can be begun: a step is ready once all that it depends on is done.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/plan/plan.hpp"

namespace sprat::collectives {

/// Of one plan at a time, which lives as long. Memory is kept from plan to plan.
class StepOrder final {
 public:
  /// The plan's first `done` steps are done already.
  void begin(const Plan& plan, std::uint32_t done);

  std::uint32_t steps() const { return static_cast<std::uint32_t>(states_.size()); }
  /// All steps before it are done.
  std::uint32_t first_open() const { return first_open_; }
  bool over() const { return first_open_ == steps(); }
  bool is_pending(std::uint32_t index) const { return states_[index] == State::pending; }
  bool is_started(std::uint32_t index) const { return states_[index] == State::started; }
  bool is_done(std::uint32_t index) const { return states_[index] == State::done; }
  bool are_done(const IndexRange& steps) const;

  /// Steps that nothing before them holds up, ascending; some of them are done. What becomes ready
  /// comes behind the step that it waited for, so that a walk by index over a growing list meets
  /// it.
  std::span<const std::uint32_t> ready() const { return ready_; }
  /// Forgets those that are done.
  void tidy();

  void start(std::uint32_t index) { states_[index] = State::started; }
  void finish(std::uint32_t index);

 private:
  enum class State : std::uint8_t { pending, started, done };
  void watch(std::uint32_t index, std::uint32_t watched);
  void make_ready(std::uint32_t index);

  const Plan* plan_ = nullptr;
  std::vector<State> states_;
  std::uint32_t first_open_ = 0;
  std::vector<std::uint32_t> ready_;
  /// By step: the first of those that are looked at again when it is done, and the one after a step
  /// in the list that it is in.
  std::vector<std::uint32_t> watchers_, next_watcher_;
};

}  // namespace sprat::collectives
