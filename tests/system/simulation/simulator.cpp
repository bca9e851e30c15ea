#include "tests/system/simulation/simulator.hpp"

#include <algorithm>
#include <cstdio>

namespace sprat::simulation {
namespace {

using namespace std::chrono_literals;

constexpr nanoseconds turn = 100ns;

std::uint64_t mix(std::uint64_t digest, std::uint64_t value) {
  digest = (digest ^ value) * 0x9e3779b97f4a7c15;
  return digest ^ digest >> 29;
}

}  // namespace

Simulator::Simulator(std::uint64_t seed, int ranks, bool trace)
    : random_(seed), trace_(trace), now_(Time{} + 1h), fates_(ranks) {
  constexpr std::uint64_t rates[] = {1, 2, 8, 64};
  stickiness_ = random_.below(4);
  point_rate_ = rates[random_.below(4)];
}

Simulator::~Simulator() = default;

void Simulator::trace(int rank, const std::string& text) {
  digest_ = mix(digest_, static_cast<std::uint64_t>((now_ - Time{}).count()));
  digest_ = mix(digest_, static_cast<std::uint64_t>(rank));
  for (const char letter : text) {
    digest_ = mix(digest_, static_cast<std::uint64_t>(letter));
  }
  if (trace_) {
    std::fprintf(stderr, "%12.7f s  rank %d  %s\n",
                 1e-9 * static_cast<double>((now_ - Time{} - 1h).count()), rank, text.c_str());
  }
}

void Simulator::spawn(int rank, std::function<void()> body) { add(rank, false, std::move(body)); }

void Simulator::serve(int rank, std::function<void()> body) { add(rank, true, std::move(body)); }

void Simulator::add(int rank, bool serves, std::function<void()> body) {
  tasks_.push_back(std::make_unique<Task>());
  tasks_.back()->rank = rank;
  tasks_.back()->serves = serves;
  tasks_.back()->fiber = std::make_unique<Fiber>(std::move(body));
}

void Simulator::at(Time time, std::function<void()> action) {
  queue_.emplace(std::pair(std::max(time, now_), events_++), std::move(action));
}

void Simulator::at(int rank, Time time, std::function<void()> action) {
  at(time, [this, rank, action = std::move(action)]() mutable {
    if (fates_[rank].dead) {
      return;
    }
    if (fates_[rank].stopped) {
      fates_[rank].deferred.push_back(std::move(action));
    } else {
      action();
    }
  });
}

bool Simulator::can_run(Task& task) {
  const Fate& fate = fates_[task.rank];
  if (fate.dead || fate.stopped || task.fiber->ended()) {
    return false;
  }
  if (task.sleeping) {
    return task.woken || task.wake_at <= now_ || (task.condition && task.condition());
  }
  return !task.condition || task.condition();
}

Simulator::Task* Simulator::choose() {
  if (running_ != nullptr && stickiness_ > 0 && can_run(*running_) &&
      !random_.once_in(stickiness_ * 2)) {
    return running_;
  }
  Task* chosen = nullptr;
  std::uint64_t seen = 0;
  for (const auto& task : tasks_) {
    if (can_run(*task) && random_.below(++seen) == 0) {
      chosen = task.get();
    }
  }
  return chosen;
}

bool Simulator::jump(Time limit) {
  Time next = Time::max();
  if (!queue_.empty()) {
    next = queue_.begin()->first.first;
  }
  for (const auto& task : tasks_) {
    const Fate& fate = fates_[task->rank];
    if (task->sleeping && !fate.dead && !fate.stopped && !task->fiber->ended()) {
      next = std::min(next, task->wake_at);
    }
  }
  if (next > limit) {
    return false;
  }
  now_ = std::max(now_, next);
  for (const auto& task : tasks_) {
    task->slept_out |= task->sleeping && task->wake_at <= now_;
  }
  return true;
}

bool Simulator::run(Time limit) {
  for (;;) {
    while (!queue_.empty() && queue_.begin()->first.first <= now_) {
      const auto action = std::move(queue_.begin()->second);
      queue_.erase(queue_.begin());
      action();
    }
    const bool over = std::all_of(tasks_.begin(), tasks_.end(), [&](const auto& task) {
      return task->serves || task->fiber->ended() || fates_[task->rank].dead;
    });
    if (over || !violation_.empty()) {
      return true;
    }
    Task* task = choose();
    if (task == nullptr) {
      if (!jump(limit)) {
        return false;
      }
      continue;
    }
    if (now_ > limit) {
      return false;
    }
    now_ += turn;
    ++turns_;
    running_ = task;
    task->fiber->resume();
  }
}

void Simulator::kill(int rank) {
  trace(rank, "is killed");
  fates_[rank].dead = true;
}

void Simulator::stop(int rank) {
  trace(rank, "is stopped");
  fates_[rank].stopped = true;
}

void Simulator::go_on(int rank) {
  if (!fates_[rank].stopped) {
    return;
  }
  trace(rank, "goes on");
  fates_[rank].stopped = false;
  for (auto& action : std::exchange(fates_[rank].deferred, {})) {
    at(rank, now_, std::move(action));
  }
}

void Simulator::after_points(int rank, std::uint64_t points, std::function<void()> action) {
  fates_[rank].trigger = fates_[rank].points + points + 1;
  fates_[rank].triggered = std::move(action);
}

void Simulator::count_point() {
  Fate& fate = fates_[running_->rank];
  if (++fate.points == fate.trigger) {
    std::exchange(fate.triggered, nullptr)();
    if (fate.dead || fate.stopped) {
      leave();
    }
  }
}

void Simulator::leave() { running_->fiber->leave(); }

void Simulator::point() {
  count_point();
  if (running_->undivided == 0 && random_.once_in(point_rate_)) {
    leave();
  }
}

void Simulator::yield() {
  count_point();
  leave();
}

void Simulator::wait_for(std::function<bool()> condition) {
  Task& self = *running_;
  self.condition = std::move(condition);
  if (!self.condition()) {
    leave();
  }
  self.condition = nullptr;
}

bool Simulator::sleep(nanoseconds timeout) {
  count_point();
  Task& self = *running_;
  self.sleeping = true;
  self.woken = self.slept_out = false;
  self.wake_at = now_ + timeout;
  leave();
  self.sleeping = false;
  return self.woken;
}

bool Simulator::poll(nanoseconds timeout, std::function<bool()> readable) {
  Task& self = *running_;
  self.condition = std::move(readable);
  sleep(timeout);
  return std::exchange(self.condition, nullptr)();
}

void Simulator::wake_rank(int rank) {
  for (const auto& task : tasks_) {
    if (task->rank == rank && task->sleeping && !task->condition) {
      task->woken = true;
    }
  }
}

bool Simulator::slept_out() const { return running_->slept_out; }

int& Simulator::undivided() { return running_->undivided; }

void Simulator::violation(const std::string& text) {
  if (violation_.empty()) {
    violation_ = text;
  }
}

}  // namespace sprat::simulation
