#include "collectives/engine/step_order.hpp"

#include <algorithm>
#include <utility>

namespace sprat::collectives {

[[gnu::hot]] void StepOrder::begin(const Plan& plan, std::uint32_t done) {
  plan_ = &plan;
  steps_.assign(plan.steps.size(), StepState{});
  std::fill_n(steps_.begin(), done, StepState{.state = State::done});
  ready_.clear();
  first_open_ = done;
  for (std::uint32_t index = done; index < steps(); ++index) {
    watch(index, no_step);
  }
}

bool StepOrder::are_done(const IndexRange& steps) const {
  return std::all_of(steps_.begin() + steps.first, steps_.begin() + steps.last,
                     [](const StepState& step) { return step.state == State::done; });
}

void StepOrder::tidy() {
  std::erase_if(ready_, [this](std::uint32_t index) { return is_done(index); });
}

// A step watches the first of those before it that is not done, and is looked at again when that
// is: a ring over thousands of ranks has as many steps, of which a few are ready at any time. What
// came before the one that it `watched` is done: nothing is looked at twice.
[[gnu::hot]] void StepOrder::watch(std::uint32_t index, std::uint32_t watched) {
  const Step& step = plan_->steps[index];
  const bool is_new = watched == no_step;
  const bool was_after = !is_new && step.after.first <= watched && watched < step.after.last;
  const IndexRange after = {is_new      ? step.after.first
                            : was_after ? watched + 1
                                        : step.after.last,
                            step.after.last};
  const IndexRange behind = {is_new || was_after ? step.behind.first : watched + 1,
                             step.behind.last};
  for (const IndexRange& range : {after, behind}) {
    for (std::uint32_t before = range.first; before < range.last; ++before) {
      if (!is_done(before)) {
        steps_[index].next_watcher = std::exchange(steps_[before].watcher, index);
        return;
      }
    }
  }
  make_ready(index);
}

[[gnu::hot]] void StepOrder::make_ready(std::uint32_t index) {
  if (ready_.empty() || ready_.back() < index) {
    ready_.push_back(index);
  } else {
    ready_.insert(std::ranges::lower_bound(ready_, index), index);
  }
}

void StepOrder::finish(std::uint32_t index) {
  steps_[index].state = State::done;
  while (first_open_ < steps() && is_done(first_open_)) {
    ++first_open_;
  }
  std::uint32_t watcher = std::exchange(steps_[index].watcher, no_step);
  while (watcher != no_step) {
    const std::uint32_t next = steps_[watcher].next_watcher;
    watch(watcher, index);
    watcher = next;
  }
}

}  // namespace sprat::collectives
