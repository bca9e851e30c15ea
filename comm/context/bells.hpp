// How threads that have nothing to do sleep, and how ranks of one host wake each other.
//
// Each rank has a bell in its control segment. Who has written something that a peer may wait for
// rings it; that costs a system call only if a thread sleeps there. One of a rank's threads may
// poll descriptors meanwhile, such as a wire's: who rings writes to a pipe that it polls too.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "comm/context/context_header.hpp"
#include "comm/context/wait_policy.hpp"
#include "comm/context/wake_pipe.hpp"

namespace sprat::comm {

/// One rank's view of the bells of its host. Any thread, once connected.
class Bells {
 public:
  /// Knows its own bell from the beginning, and the others' once connect() was called.
  Bells(WaitPolicy& wait_policy, ControlHeader& mine, int rank)
      : wait_policy_(wait_policy), mine_(mine), rank_(rank) {}
  Bells(const Bells&) = delete;
  Bells& operator=(const Bells&) = delete;
  /// A rank's.
  struct Bell {
    ControlHeader* header = nullptr;  ///< Null for ranks of other hosts.
    pid_t pid = 0;
  };
  /// `bells`: by world rank. `light`: all ranks that are local registered their fences, so a ring
  /// needs no expensive one.
  void connect(const std::vector<Bell>& bells, bool light);
  /// Threads of this rank may poll these from now on, unless its process has no descriptors left
  /// for a pipe. Once, before any thread sleeps.
  void allow_polling(std::span<const int> descriptors);
  /// They may, and peers can end a poll.
  bool can_poll() const;

  /// Wakes local peers that sleep: this rank has written something they may wait for.
  void ring(std::span<const int> local_peers);
  /// Wakes threads of this rank that sleep.
  void ring_self();
  /// The same, whether it sees them sleep or not.
  void wake_self();

  /// A thread of this rank that sleeps, maybe several times, until there is something to do. Peers
  /// ring for as long as it lives, which costs them a system call each: it does not outlive
  /// idleness.
  class Sleeper {
   public:
    explicit Sleeper(Bells& bells);
    ~Sleeper();
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;
    /// From here on no ring is missed: the caller looks once more whether there is something to do,
    /// and sleeps if not.
    void listen();
    /// Until this rank's bell has been rung since listen(), at most for so long.
    void sleep(std::chrono::nanoseconds longest);
    /// The same, or until a descriptor of allow_polling() can be read. One thread of this rank at a
    /// time, and only if can_poll().
    void poll(std::chrono::nanoseconds longest);

   private:
    Bells& bells_;
    std::uint32_t heard_ = 0;
  };

 private:
  void wake(ControlHeader& header, int rank);
  void end_poll(ControlHeader& header, int rank);
  bool write_to_pipe(ControlHeader& header, int rank);

  WaitPolicy& wait_policy_;
  ControlHeader& mine_;
  const int rank_;
  std::vector<ControlHeader*> headers_;
  bool light_ = false;
  std::unique_ptr<WakePipe> pipe_;  ///< Null: nobody polls.
  std::vector<pollfd> polled_;      ///< The pipe, then the descriptors. Of the thread that polls.
  std::vector<pid_t> pids_;         ///< By world rank.
  std::mutex pipes_mutex_;          ///< Guards `pipes_`.
  std::vector<std::unique_ptr<WakePipeWriter>> pipes_;  ///< By world rank. Null: not opened yet.
};

}  // namespace sprat::comm
