#include "comm/context/progress.hpp"

#include <algorithm>
#include <utility>

#include "comm/base/thread.hpp"

namespace sprat::comm {
namespace {

using namespace std::chrono_literals;

// Looks at a wire, a system call each, before others may have the core.
constexpr int wire_spin_rounds = 50;
// Rounds of a long wait between two looks at a wire of which nothing is awaited. Among busy
// strangers each of them may take milliseconds.
constexpr int rounds_a_look = 64;
// Sleeping threads look again this often: what a wire brings rings no bell.
constexpr std::chrono::nanoseconds sleep_with_wire = 50us;
constexpr std::chrono::nanoseconds sleep_without_wire = 2ms;
// The progress thread takes the core from whoever computes: the longer nothing comes, the longer it
// sleeps, up to this, but no longer than it has waited already.
constexpr std::chrono::nanoseconds longest_sleep_with_wire = 1ms;
// A thread that waits for the token has woken by then, unless its core is taken.
constexpr std::chrono::nanoseconds longest_hand_over = 100us;
// Who reports a failure says what was under way if it can have the token by then.
constexpr std::chrono::nanoseconds report_patience = 20ms;
// Who has run a task comes for the token within some yields, unless its core is taken.
constexpr int yields_before_naps = 16;
constexpr std::chrono::nanoseconds nap = 50us;

}  // namespace

void Progress::open(Transports transports, std::atomic<std::int64_t>& waiting_threads,
                    std::atomic<std::int64_t>& waited_ns, bool oversubscribed) {
  transports_ = std::move(transports);
  waiting_threads_ = &waiting_threads;
  waited_.ns = &waited_ns;
  oversubscribed_ = oversubscribed;
  watch_.open(transports_.wire.get());
}

void Progress::forget_messages(std::uint64_t communicator) noexcept {
  for (MessageTransport* transport : {transports_.local.get(), transports_.wire.get()}) {
    if (transport != nullptr) {
      transport->forget(communicator);
    }
  }
}

void Progress::stop() {
  unattended_.stop();
  if (thread_.joinable()) {
    thread_.join();
  }
}

bool Progress::drive_once() {
  IdleThread never;
  return has_moved(drive_once(never));
}

Progress::Driven Progress::drive_once(IdleThread& idle) {
  const Driven driven = drive(idle);
  if (driven == Driven::worked) {
    bells_.ring_self();
  }
  return driven;
}

[[gnu::hot]] Progress::Driven Progress::drive(IdleThread& idle) {
  bool moved = false, claimed = false;
  Drivers::Round round;
  {
    const Token token = try_token();
    if (!token) {
      return Driven::elsewhere;
    }
    const bool awaits_any = messages_in_flight_.load(std::memory_order_relaxed) > 0;
    moved |= awaits_any && transports_.local && transports_.local->progress();
    // Who awaits no message may have to answer a peer that connects, or to give it back its credit.
    const bool looks = std::exchange(idle.looks, false);
    moved |= (awaits_any || looks) && transports_.wire && transports_.wire->progress();
    round = drivers_.advance();
    moved |= round.moved;
    claimed = claim(round);
  }
  if (claimed) {
    leave_wire(idle);  // for as long as the task lasts
    carry_out(round);
  }
  if (!moved && !claimed) {
    return Driven::nothing;
  }
  if (token_wanted()) {
    give_way();
  }
  return claimed ? Driven::worked : Driven::moved;
}

// `running` is let go of before the token is taken: who claims a task has the token and takes
// `running`, and two locks are taken in one order only.
Progress::Token Progress::carry_out(const Drivers::Round& round) {
  round.task->run();
  round.entry->running.unlock();
  Token token = take_token();
  round.entry->busy = false;
  return token;
}

// Until the task that the entry's driver has left is over. It counts as busy for a moment more,
// until who ran it has the token.
void Progress::await(Drivers::Entry& entry, int round) {
  wait_policy_.lock(entry.running);
  entry.running.unlock();
  if (round < yields_before_naps) {
    wait_policy_.yield();
    return;
  }
  std::atomic<std::uint32_t> unrung = 0;
  wait_policy_.sleep(unrung, 0, nap);
}

void Progress::remove(Driver* driver) {
  for (int round = 0;; ++round) {
    std::shared_ptr<Drivers::Entry> entry;
    {
      const Token token = take_token();
      entry = drivers_.find(driver);
      if (!entry->busy) {
        drivers_.remove(driver);
        return;
      }
    }
    await(*entry, round);
  }
}

// Once a communicator has failed, its driver leaves no other task. Whoever drives it holds the
// token for what it does without one, so to have had the token means that this is over, too.
void Progress::await_tasks(std::uint64_t communicator) {
  for (int round = 0;; ++round) {
    std::shared_ptr<Drivers::Entry> entry;
    {
      const Token token = take_token();
      entry = drivers_.find_busy(communicator);
    }
    if (!entry) {
      return;
    }
    await(*entry, round);
  }
}

// Mutexes are not fair: who has just let the token go, and goes on driving, would have it again
// before a thread that sleeps for it has woken, slice after slice.
void Progress::give_way() {
  const std::uint32_t before = token_.taken();
  const auto patience = wait_policy_.now() + longest_hand_over;
  while (token_wanted() && token_.taken() == before && wait_policy_.now() < patience) {
    wait_policy_.yield();
  }
}

[[gnu::hot]] void Progress::drive_until(const std::function<bool()>& done) {
  if (done()) {
    return;
  }
  waiting_threads_->fetch_add(1, std::memory_order_relaxed);
  unattended_.note_wait();
  int idle_rounds = 0;
  bool worked = false;
  Clock::time_point idle_since{}, uncounted_since{};
  IdleThread idle;
  while (!done()) {
    const Driven driven = drive(idle);
    worked |= driven == Driven::worked;
    if (has_moved(driven)) {
      idle_rounds = 0;
      idle.sleeper.reset();
      continue;
    }
    if (idle_rounds == 0 && idle_since == Clock::time_point{}) {
      idle_since = uncounted_since = wait_policy_.now();
    }
    const bool enough = idle_rounds >= wire_spin_rounds && with_wire();
    idle.looks = idle_rounds >= unclocked_rounds && idle_rounds % rounds_a_look == 0;
    if (wait_policy_.rest(idle_rounds, enough ? Awaited::wire : Awaited::work)) {
      ++idle_rounds;
    } else {
      sleep_until_rung(idle, done, sleep_with_wire);
      // A wait that goes on is seen from outside while it does; a look at the clock is little
      // beside a sleep.
      const Clock::time_point now = wait_policy_.now();
      waited_.count(now - uncounted_since);
      uncounted_since = now;
    }
  }
  idle.sleeper.reset();
  waiting_threads_->fetch_sub(1, std::memory_order_relaxed);
  if (worked || idle.relied_on) {
    bells_.ring_self();  // whoever waits for the rest of that work, or for the wire, drives now
  }
  if (idle_since != Clock::time_point{}) {
    const Clock::time_point now = wait_policy_.now();
    waited_.count(now - uncounted_since);
    waited_.show(idle_since, now);
  }
}

// Waits that nobody sees would push out what somebody does.
[[gnu::hot]] void WaitSum::show(Clock::time_point since, Clock::time_point now) const noexcept {
  constexpr std::chrono::microseconds shortest{5};
  if (tracer != nullptr && now - since >= shortest) [[unlikely]] {
    tracer->add({.row = TraceRow::waits, .name = "wait", .start = since, .end = now});
  }
}

[[gnu::hot]] void Progress::sleep_until_rung(IdleThread& idle, const std::function<bool()>& done,
                                             std::chrono::nanoseconds longest_with_wire) {
  if (!idle.sleeper) {
    idle.sleeper.emplace(bells_);
  }
  idle.sleeper->listen();
  begin_watch(idle);
  const Driven driven = drive_once(idle);
  // What the wire told of as the watch began its descriptors show no more: nobody may have driven
  // it since.
  const bool untold = idle.watches && driven == Driven::elsewhere;
  if (has_moved(driven) || untold || done()) {
    end_watch(idle);
    idle.sleeper.reset();
  } else if (idle.watches) {
    idle.sleeper->poll(sleep_without_wire);
    end_watch(idle);
  } else {
    const bool nobody = with_wire() && !watch_.taken();
    idle.sleeper->sleep(nobody ? longest_with_wire : sleep_without_wire);
  }
  idle.looks = true;
}

[[gnu::hot]] void Progress::begin_watch(IdleThread& idle) {
  if (!with_wire() || !watch_.possible()) {
    return;
  }
  const Token token = try_token();
  if (token && watch_.begin()) {
    idle.watches = idle.relied_on = true;
  }
}

void Progress::end_watch(IdleThread& idle) {
  if (std::exchange(idle.watches, false)) {
    watch_.end();
  }
}

void Progress::leave_wire(IdleThread& idle) {
  end_watch(idle);
  if (std::exchange(idle.relied_on, false)) {
    bells_.ring_self();
  }
}

void Progress::count_unattended(int delta) {
  if (delta < 0) {
    return unattended_.less();
  }
  if (options_.may_start_thread) {
    std::call_once(started_, [this] {
      thread_ = start_thread("the progress thread", [this] { run_thread(); });
    });
  }
  unattended_.more();
}

void Progress::run_thread() {
  auto moved = wait_policy_.now();
  IdleThread idle;
  const auto attended = [this] { return waiting_threads_->load(std::memory_order_relaxed) > 0; };
  bool has_slept = false;
  const auto stop_driving = [&] {
    idle.sleeper.reset();
    leave_wire(idle);
    has_slept = true;
  };
  while (unattended_.await(attended, stop_driving)) {
    if (std::exchange(has_slept, false)) {
      moved = wait_policy_.now();
    }
    if (has_moved(drive_once(idle))) {
      moved = wait_policy_.now();
      idle.sleeper.reset();
    } else {
      const std::chrono::nanoseconds waited = wait_policy_.now() - moved;
      sleep_until_rung(
          idle, [] { return false; }, std::clamp(waited, sleep_with_wire, longest_sleep_with_wire));
    }
  }
}

std::string Progress::operation_under_way() {
  const auto patience = wait_policy_.now() + report_patience;
  for (;;) {
    if (const Token token = try_token()) {
      const std::string text = drivers_.under_way();
      return text.empty() ? "no operation" : text;
    }
    if (wait_policy_.now() > patience) {
      return "an operation";
    }
    wait_policy_.yield();
  }
}

}  // namespace sprat::comm
