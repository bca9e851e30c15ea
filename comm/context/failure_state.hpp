// What a rank knows of failures: of the job's, of communicators', who has died or left, who is
// late.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/context/bells.hpp"
#include "comm/context/failure_scope.hpp"
#include "comm/context/wait_policy.hpp"
#include "comm/coordinator/rendezvous.hpp"
#include "sprat/error.hpp"

namespace sprat::comm {

/// One rank's. Any thread.
class FailureState {
 public:
  struct Setup {
    int size;
    bool record_may_hang;  ///< As expect_slow_record().
  };
  FailureState(WaitPolicy& wait_policy, Bells& bells, const Setup& options);
  ~FailureState();
  FailureState(const FailureState&) = delete;
  FailureState& operator=(const FailureState&) = delete;

  // --- what has failed --------------------------------------------------------------------------
  /// Of the whole job. Null while it is well. Set once, never changes.
  const Error* first() const noexcept { return first_.load(std::memory_order_acquire); }
  /// The job has failed, and all communicators with it: shows it to local peers, then to this
  /// rank's threads, which it wakes. False if it had failed before.
  bool set(const Error& error) noexcept;
  /// A domain has failed. True if a communicator here has failed by it.
  bool set(std::uint64_t domain, const Error& error) noexcept;
  /// A rank is lost: the domains that failed by it here.
  std::vector<std::uint64_t> set_lost(int rank, const Error& error);
  FailureScopes& scopes() noexcept { return scopes_; }
  /// Whether the rank that shows this word has failed, so that its memory may hold anything by now.
  /// What was read of it before this returned false was good.
  static bool is_shown(const std::atomic<std::uint32_t>& shown) noexcept;

  // --- the record that a failed rank leaves -----------------------------------------------------
  /// `leave` runs once, with the first start_record(), and gets its cause. It takes no token and
  /// does not throw.
  void on_failure(std::function<void(const std::string& cause)> leave);
  /// What on_failure() is given writes to files. While nothing can fail yet.
  void expect_slow_record() noexcept { record_may_hang_ = true; }
  /// After the other ranks were told. Runs `leave`: in a thread of its own if that may hang.
  void start_record(const std::string& cause) noexcept;
  /// Until `leave` is through, so that the caller may end the process; not for ever.
  void await_record() noexcept;

  // --- peers ------------------------------------------------------------------------------------
  /// It has said farewell: it calls nothing any more.
  bool departed(int rank) const { return departed_[rank].load(std::memory_order_acquire); }
  void note_departed(int rank);
  /// It is known to be dead.
  bool lost(int rank) const { return lost_[rank].load(std::memory_order_acquire); }
  void note_lost(int rank);
  /// Until what it returns is gone, `told` hears of each rank that dies or leaves, at once of those
  /// that have. On the thread that learns of it: it waits for nobody and does not throw. The caller
  /// lets it go before this ends.
  std::shared_ptr<void> watch_ends(std::function<void(int rank)> told);
  /// World ranks known not to have called (communicator, sequence), or to have fallen silent after
  /// that, from the last verdict about that communicator.
  Lateness lateness(std::uint64_t communicator, std::uint64_t sequence);
  void note_lateness(std::uint64_t communicator, std::uint64_t sequence, Lateness lateness);
  /// Nobody waits in it any more.
  void forget_lateness(std::uint64_t communicator) noexcept;

 private:
  void note_end(std::atomic<bool>& ended, int rank);
  void leave_record() noexcept;

  Bells& bells_;
  FailureScopes scopes_;
  std::atomic<const Error*> first_ = nullptr;  ///< Release on set: the Error is complete. Owned.

  const int size_;  ///< Of the job.
  bool record_may_hang_;
  std::mutex leave_mutex_;  ///< Guards the five below.
  std::condition_variable left_;
  std::optional<std::string> cause_;
  std::function<void(const std::string&)> leave_;
  bool leaving_ = false;  ///< leave_ runs, or was not there to be run.
  std::thread leave_thread_;

  std::unique_ptr<std::atomic<bool>[]> departed_, lost_;
  std::mutex end_mutex_;  ///< Guards the one below, and is held while they are told.
  std::list<std::function<void(int)>> end_watchers_;
  struct Verdict {
    std::uint64_t sequence;
    Lateness lateness;
  };
  std::mutex verdict_mutex_;                   ///< Guards the one below.
  std::map<std::uint64_t, Verdict> verdicts_;  ///< The last one about each communicator.
};

}  // namespace sprat::comm
