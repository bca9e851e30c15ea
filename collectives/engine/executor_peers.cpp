// Whom the active operation waits for: shown on the status page, and said when it takes long.
#include <algorithm>
#include <set>

#include "collectives/engine/executor.hpp"
#include "comm/base/check.hpp"
#include "comm/base/log.hpp"

namespace sprat::collectives {
namespace {

using namespace std::chrono_literals;
using comm::Clock;

constexpr auto look_again = 100ms;
// A warning names so many ranks, and counts the rest.
constexpr std::size_t most_named = 8;

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

void Executor::watch_peers(Clock::time_point now) {
  if (now - looked_ < look_again) {
    return;
  }
  looked_ = now;
  const std::vector<int> late = this->late();
  std::vector<int> ranks = late;
  for (const int world : awaited()) {
    if (std::ranges::find(late, world) == late.end()) {
      ranks.push_back(world);
    }
  }
  recorder_.waits(queue_.front()->sequence, ranks, late.size());

  const auto waited = now - waits_since();
  if (stragglers_.warned()) {
    tell_who_came(now, stragglers_.came(late));
  } else if ((late.empty() || lowest_that_waits()) && stragglers_.warn(waited, late)) {
    if (late.empty()) {
      log().warn(
          "{} has waited {:.1f} s; every rank has called it, but {} not go on", describe_active(),
          seconds(waited),
          ranks.empty() ? "it does" : text(named(ranks), ranks.size() == 1 ? " does" : " do"));
    } else {
      log().warn("{} has waited {:.1f} s for {}", describe_active(), seconds(waited), named(late));
    }
  }
}

void Executor::tell_who_came(Clock::time_point now, const std::vector<int>& ranks) {
  for (const int world : ranks) {
    log().warn("{}: {} came {:.1f} s late", describe_active(), context_->describe_peer(world),
               seconds(now - waits_since()));
  }
}

Clock::time_point Executor::waits_since() const {
  return std::max(queue_.front()->posted, recorder_.last_end());
}

// So that one rank of a host speaks for all that wait for the same.
bool Executor::lowest_that_waits() const {
  const std::uint64_t sequence = queue_.front()->sequence;
  return std::none_of(local_peers_.begin(), local_peers_.end(), [&](int peer) {
    ControlBlock& theirs = *peers_[peer].control_block;
    return peer < membership_.rank &&
           theirs.of(sequence).announced.load(std::memory_order_acquire) == sequence + 1 &&
           theirs.completed.load(std::memory_order_acquire) <= sequence;
  });
}

std::string Executor::named(const std::vector<int>& world_ranks) const {
  std::string names;
  for (std::size_t i = 0; i < std::min(world_ranks.size(), most_named); ++i) {
    names += text(i == 0 ? "" : ", ", context_->describe_peer(world_ranks[i]));
  }
  const std::size_t more = world_ranks.size() - std::min(world_ranks.size(), most_named);
  return more == 0 ? names : text(names, " and ", more, " more");
}

// World ranks that it waits for now, whether they have called it or not; ascending.
std::vector<int> Executor::awaited() const {
  const std::uint64_t sequence = queue_.front()->sequence;
  std::set<int> ranks;
  const auto await = [&](int peer) { ranks.insert(membership_.world_ranks[peer]); };
  const auto await_locals = [&](auto&& has_come) {
    for (const int peer : local_peers_) {
      if (!has_come(*peers_[peer].control_block)) {
        await(peer);
      }
    }
  };
  const auto has_left = [&](std::size_t windows) {
    return [&, windows](ControlBlock& theirs) {
      const Slot& slot = theirs.of(sequence);
      return slot.announced.load(std::memory_order_acquire) == sequence + 1 &&
             slot.left.load(std::memory_order_acquire) >= windows;
    };
  };
  switch (phase_) {
    case Phase::idle:
      break;
    case Phase::meeting:
    case Phase::gathering:
      await_locals(has_left(0));
      break;
    case Phase::running:
      if (first_open_ == 0 && window_.index >= 2 && exposes_memory()) {
        await_locals(has_left(window_.index - 1));
      }
      for (std::uint32_t index = first_open_; index < states_.size(); ++index) {
        await_step(index, await);
      }
      break;
    case Phase::leaving:
      await_locals(has_left(windows_.number));
      break;
  }
  return {ranks.begin(), ranks.end()};
}

void Executor::await_step(std::uint32_t index, const std::function<void(int)>& await) const {
  const Step& step = plan_->steps[index];
  if (states_[index] == StepState::posted) {
    await(step.peer);
  }
  if (states_[index] != StepState::pending ||
      std::any_of(states_.begin() + step.after.first, states_.begin() + step.after.last,
                  [](StepState before) { return before != StepState::done; })) {
    return;
  }
  const auto await_signals = [&](int rank) {
    if (rank == membership_.rank || step.needs == 0) {
      return;
    }
    const Slot& slot = peers_[rank].control_block->of(active_->sequence);
    const bool called = slot.announced.load(std::memory_order_acquire) == active_->sequence + 1;
    if (!called || !has_signalled(rank, step.needs)) {
      await(rank);
    }
  };
  switch (step.verb) {
    case Verb::wait:
      await_signals(step.peer);
      break;
    case Verb::copy:
      await_signals(step.from.rank);
      break;
    case Verb::reduce:
      for (std::uint32_t i = step.sources.first; i < step.sources.last; ++i) {
        await_signals(plan_->sources[i].from.rank);
      }
      break;
    case Verb::share:
    case Verb::signal:
    case Verb::send:
    case Verb::recv:
      break;
  }
}

}  // namespace sprat::collectives
