// How threads that have nothing to do sleep, and how ranks of one host wake each other.
//
// Each rank has a bell in its control segment. Who has written something that a peer may wait for
// rings it; that costs a system call only if a thread sleeps there.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/context/context_header.hpp"
#include "comm/context/wait_policy.hpp"

namespace sprat::comm {

/// One rank's view of the bells of its host. Any thread, once connected.
class Bells {
 public:
  /// Knows its own bell from the beginning, and the others' once connect() was called.
  Bells(WaitPolicy& wait_policy, ControlHeader& mine, int rank)
      : wait_policy_(wait_policy), mine_(mine), rank_(rank) {}
  /// `headers`: by world rank, null for ranks of other hosts. `light`: all of these ranks
  /// registered their fences, so a ring needs no expensive one.
  void connect(std::vector<ControlHeader*> headers, bool light);

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

   private:
    Bells& bells_;
    std::uint32_t heard_ = 0;
  };

 private:
  void wake(ControlHeader& header, int rank);

  WaitPolicy& wait_policy_;
  ControlHeader& mine_;
  const int rank_;
  std::vector<ControlHeader*> headers_;
  bool light_ = false;
};

}  // namespace sprat::comm
