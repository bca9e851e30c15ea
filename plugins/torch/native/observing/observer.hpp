// What others are told of a group's operations: hooks, timings, and c10d's flight record.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "plugins/torch/native/disagreement.hpp"
#include "plugins/torch/native/observing/flight_trace.hpp"
#include "plugins/torch/native/observing/hooks.hpp"
#include "plugins/torch/native/observing/timeouts.hpp"

namespace sprat::pytorch {

struct Operation;

/// One operation under way.
struct Observed {
  using Clock = std::chrono::steady_clock;

  c10d::OpType type = c10d::OpType::UNKNOWN;
  std::uint64_t sequence = 0;  ///< The group's count of operations, from 1.
  Timeouts::Granted deadline;
  Clock::time_point began{};
  std::optional<std::uint64_t> entry;  ///< Of the flight record.
  bool timed = false;                  ///< Its duration can be asked for.
  bool hooked = false;                 ///< A completion hook expects it.
  std::uint64_t key = 0;               ///< No other operation of the process has it.
};

/// Which ranks a group has, and where they tell each other what went wrong.
struct GroupPlace {
  c10::intrusive_ptr<c10d::Store> store;
  std::string name;
  int rank = 0, size = 1;
  std::vector<std::uint64_t> ranks;  ///< The job's, in the group's order.
};

/// A group as its Works know it, which outlive it. Any thread.
class Observer final {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// Without a trace nothing is recorded.
  Observer(GroupPlace place, Milliseconds timeout, std::shared_ptr<FlightTrace> trace);
  /// The same group with other ranks: timeouts, timing and hooks stay.
  Observer(GroupPlace place, const Observer& before);

  Notes notes;
  const std::vector<std::uint64_t> ranks;
  const std::shared_ptr<Timeouts> timeouts;
  const std::shared_ptr<CompletionHook> completion;
  /// Called before abort(), and once an operation has failed.
  const std::shared_ptr<HookTable<>> abort_hooks;
  /// Called with the key and the milliseconds, if it was timed, of each operation that ended well.
  using EndHooks = HookTable<std::uint64_t, std::optional<float>>;
  const std::shared_ptr<EndHooks> end_hooks;

  /// An operation begins; it asks for a timeout of its own or for the group's. `description` is
  /// c10d's of the group, which comes after the group is made.
  Observed begin(const Operation& operation, std::uint64_t sequence, Milliseconds asked,
                 const std::string& description);
  /// Its Work is there.
  void started(const Observed& observed, const sprat::Work& work);
  /// It has ended: once for each that began. `failed` may be null.
  void end(const Observed& observed, const std::exception_ptr& failed,
           Observed::Clock::time_point ended);
  /// One has failed: abort hooks are called, and the flight record is written, if that failed the
  /// group. The caller holds no lock.
  void tell_of_failure(const std::exception_ptr& failed);

  /// Operations that begin from here on are timed.
  void enable_timing() { timing_.store(true, std::memory_order_relaxed); }
  /// Whether the end of an operation must be seen when it comes, though nobody waits for it.
  bool follows() const {
    return timing_.load(std::memory_order_relaxed) || completion->is_set() || abort_hooks->any() ||
           end_hooks->any();
  }
  /// Calls the abort hooks, the first time only.
  void call_abort_hooks();

 private:
  std::atomic<bool> timing_ = false;
  std::atomic<bool> abort_told_ = false;  ///< Hooks are called once.
  const std::shared_ptr<FlightTrace> trace_;
  std::once_flag known_;    ///< trace_ knows the group.
  std::size_t number_ = 0;  ///< In trace_.
};

}  // namespace sprat::pytorch
