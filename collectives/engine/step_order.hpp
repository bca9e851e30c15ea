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

  std::uint32_t steps() const { return static_cast<std::uint32_t>(steps_.size()); }
  /// All steps before it are done.
  std::uint32_t first_open() const { return first_open_; }
  bool over() const { return first_open_ == steps(); }
  bool is_pending(std::uint32_t index) const { return steps_[index].state == State::pending; }
  bool is_started(std::uint32_t index) const { return steps_[index].state == State::started; }
  bool is_done(std::uint32_t index) const { return steps_[index].state == State::done; }
  bool are_done(const IndexRange& steps) const;

  /// Steps that nothing before them holds up, ascending; some of them are done. What becomes ready
  /// comes behind the step that it waited for, so that a walk by index over a growing list meets
  /// it.
  std::span<const std::uint32_t> ready() const { return ready_; }
  /// Forgets those that are done.
  void tidy();

  void start(std::uint32_t index) { steps_[index].state = State::started; }
  void finish(std::uint32_t index);

 private:
  enum class State : std::uint8_t { pending, started, done };
  static constexpr std::uint32_t no_step = ~std::uint32_t{0};
  struct StepState {
    State state = State::pending;
    /// The first of those that are looked at again when this one is done, and the one after it in
    /// the list that it is in itself.
    std::uint32_t watcher = no_step, next_watcher = no_step;
  };
  void watch(std::uint32_t index, std::uint32_t watched);
  void make_ready(std::uint32_t index);

  const Plan* plan_ = nullptr;
  std::vector<StepState> steps_;
  std::uint32_t first_open_ = 0;
  std::vector<std::uint32_t> ready_;
};

}  // namespace sprat::collectives
