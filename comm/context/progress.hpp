// Who moves a rank's work: whoever waits, drives.
//
// There is one token (a mutex); its holder moves the transports and every registered Driver. Copies
// and reductions that drivers leave are done without it, each by the thread that was given it,
// while others drive whatever else there is. A progress thread takes the token only for work that
// nobody waits for.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/context/bells.hpp"
#include "comm/context/driver.hpp"
#include "comm/context/unattended.hpp"
#include "comm/context/wait_policy.hpp"
#include "comm/context/wire_watch.hpp"
#include "comm/context/work_token.hpp"
#include "comm/transports/transport.hpp"
#include "sprat/trace.hpp"

namespace sprat::comm {

/// What waits add up to, and where each is shown. Any thread.
struct WaitSum {
  std::atomic<std::int64_t>* ns = nullptr;  ///< Relaxed: a measure.
  Tracer* tracer = nullptr;                 ///< Null: nobody keeps a timeline.

  void count(Clock::duration time) noexcept {
    ns->fetch_add(time.count(), std::memory_order_relaxed);
  }
  void show(Clock::time_point since, Clock::time_point now) const noexcept;
};

/// A thread that has had nothing to do.
struct IdleThread {
  std::optional<Bells::Sleeper> sleeper;  ///< For one sleep after the other, until it has.
  bool watches = false;                   ///< It is the one of WireWatch.
  bool relied_on = false;                 ///< It has been, and others may sleep for that.
  bool looks = false;                     ///< At the wire, though nothing is awaited of it.
};

class Progress {
 public:
  /// What is driven besides drivers.
  struct Transports {
    std::unique_ptr<MessageTransport> local;
    std::unique_ptr<MessageTransport> wire;  ///< Null if all ranks are local.
  };

  struct Options {
    bool may_start_thread = true;  ///< Otherwise all work must be waited for.
    /// Bytes read and written: less is not worth letting go of the token for.
    std::size_t least_task = 32 << 10;
  };
  /// Lends the token from the beginning, and drives once open() was called.
  Progress(WaitPolicy& wait_policy, Bells& bells, const Options& options)
      : wait_policy_(wait_policy),
        bells_(bells),
        options_(options),
        token_(wait_policy),
        watch_(bells),
        unattended_(wait_policy) {}
  ~Progress() { stop(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// `waiting_threads` counts those in drive_until(), `waited_ns` how long they have been there.
  /// `oversubscribed`: ranks outnumber the cores they may use.
  void open(Transports transports, std::atomic<std::int64_t>& waiting_threads,
            std::atomic<std::int64_t>& waited_ns, bool oversubscribed);
  /// Ends the progress thread.
  void stop();

  // --- the token --------------------------------------------------------------------------------
  using Token = WorkToken::Held;
  Token take_token() { return token_.take(); }
  /// Empty if another thread has it.
  Token try_token() { return token_.try_take(); }
  /// Another thread waits in take_token(). A hint.
  bool token_wanted() const { return token_.wanted(); }
  /// Makes this call once the token has been let go. Token held.
  void after_token(std::function<void()> call) { token_.after(std::move(call)); }

  // --- what is in flight; token held ------------------------------------------------------------
  Drivers& drivers() { return drivers_; }
  std::size_t least_task() const { return options_.least_task; }
  MessageTransport& local_messages() { return *transports_.local; }
  bool has_wire() const { return transports_.wire != nullptr; }
  MessageTransport& wire_messages() { return *transports_.wire; }
  /// A communicator has failed, and withdrawn what it had posted.
  void forget_messages(std::uint64_t communicator) noexcept;
  /// Transports are polled while someone has messages in flight; the wire now and then also by who
  /// waits for long.
  void begin_messages(int count) { messages_in_flight_ += count; }
  void end_messages(int count) { messages_in_flight_ -= count; }
  /// Operations of drivers that are under way, each counted by its driver.
  void begin_operation() { ++operations_; }
  void end_operation() { --operations_; }
  /// Nothing but the caller's own call needs driving.
  bool idle() const {
    return operations_ == 0 && messages_in_flight_.load(std::memory_order_relaxed) == 0;
  }

  /// One operation is in flight, somebody waits for it, and nothing else is kept waiting by a long
  /// task.
  bool one_is_awaited() const {
    return operations_ == 1 && messages_in_flight_.load(std::memory_order_relaxed) == 0 &&
           waiting_threads_->load(std::memory_order_relaxed) > 0;
  }

  // --- tasks ------------------------------------------------------------------------------------
  /// The round's task is the caller's, who is to carry_out() it once it has let the token go;
  /// nobody calls its driver until then. False if there is none, or it has to wait: a call of
  /// after_token() comes first, for it may wait for that driver. Token held.
  bool claim(const Drivers::Round& round) {
    if (round.task == nullptr || token_.has_calls()) {
      return false;
    }
    round.entry->busy = true;
    round.entry->running.lock();
    return true;
  }
  /// Runs a task that was claimed. Token not held; returns it, taken again.
  Token carry_out(const Drivers::Round& round);
  /// Until the task that a driver has left, if any, is over, and its driver not called any more.
  void remove(Driver* driver);
  /// Until no task of this communicator runs of those that run now. Token not held.
  void await_tasks(std::uint64_t communicator);

  // --- driving; any thread ----------------------------------------------------------------------
  /// Drives until `done` is true. What makes it true rings this rank's bell.
  void drive_until(const std::function<bool()>& done);
  /// One round of driving; false if nothing moved or another thread drives.
  bool drive_once();
  /// There is (delta > 0) or is no longer work in flight that nobody promised to wait for.
  void count_unattended(int delta);
  bool oversubscribed() const { return oversubscribed_; }
  void add_waited(Clock::time_point since, Clock::time_point now) {
    waited_.count(now - since);
    waited_.show(since, now);
  }
  /// From here on waits are shown there, too. Before anybody waits.
  void trace_waits(Tracer* tracer) { waited_.tracer = tracer; }
  /// Seconds that threads have spent in drive_until().
  double seconds_waited() const {
    return 1e-9 * static_cast<double>(waited_.ns->load(std::memory_order_relaxed));
  }
  /// "all_reduce of 8 B", "no operation", or no more than "an operation" if the token is not to be
  /// had soon.
  std::string operation_under_way();

 private:
  enum class Driven {
    nothing,
    elsewhere,  ///< Another thread has the token.
    moved,
    worked,  ///< Ran a task: others may have found its driver busy, and sleep.
  };
  static bool has_moved(Driven driven) {
    return driven == Driven::moved || driven == Driven::worked;
  }
  Driven drive(IdleThread& idle);
  Driven drive_once(IdleThread& idle);
  void await(Drivers::Entry& entry, int round);
  void give_way();
  void run_thread();
  bool with_wire() const {
    return transports_.wire && messages_in_flight_.load(std::memory_order_relaxed) > 0;
  }
  /// Sleeps, at most for `longest_with_wire` while a wire may bring something that nobody polls
  /// for.
  void sleep_until_rung(IdleThread& idle, const std::function<bool()>& done,
                        std::chrono::nanoseconds longest_with_wire);
  /// Makes the thread the one that polls the wire if it has to sleep, if that can be had now.
  void begin_watch(IdleThread& idle);
  void end_watch(IdleThread& idle);
  /// The thread looks after the wire no more: another one that sleeps may.
  void leave_wire(IdleThread& idle);

  WaitPolicy& wait_policy_;
  Bells& bells_;
  const Options options_;
  bool oversubscribed_ = false;  ///< Ranks share cores.
  Transports transports_;
  std::atomic<std::int64_t>* waiting_threads_ = nullptr;  ///< Relaxed: a hint.
  WaitSum waited_;
  std::atomic<int> messages_in_flight_ = 0;  ///< Written with the token held; relaxed.

  WorkToken token_;
  WireWatch watch_;
  Drivers drivers_;     ///< Guarded by the token.
  int operations_ = 0;  ///< The same.

  Unattended unattended_;
  std::once_flag started_;
  std::thread thread_;  ///< Started with the first unattended work.
};

}  // namespace sprat::comm
