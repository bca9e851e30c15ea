// The clocks and counters behind the budget of cores: whom the threads of a loader ask, and whom
// reductions tell.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "comm/base/reduction_observer.hpp"
#include "io/cores/busy_history.hpp"
#include "io/cores/core_governor.hpp"
#include "io/cores/core_plan.hpp"

namespace sprat::io {

/// What took the cores in an interval.
struct CoreUse {
  double seconds = 0;         ///< The interval's length.
  double budget = 0;          ///< Cores of this rank.
  double decode_seconds = 0;  ///< CPU time of threads that decode.
  double read_seconds = 0;    ///< CPU time of threads that read.
  std::uint64_t reduced_bytes = 0;
  double reduced_in_seconds = 0;   ///< From reductions' begins to their ends, summed.
  std::optional<double> slowdown;  ///< Of reductions by decoding, since the budget was made.
  CoreDecision decision;
};

/// Any thread. No call waits.
class CoreBudget final : public ReductionObserver {
 public:
  enum class Role : std::uint8_t { decodes, reads };

  explicit CoreBudget(const CorePlan& plan);

  /// The calling thread, while this lives, is one that decodes or reads.
  class Member {
   public:
    Member(CoreBudget& budget, Role role);
    ~Member();
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;

    /// Of a thread that decodes, to be asked before each record: whether it may. If not, ask again
    /// in some milliseconds. Takes on the priority that was decided.
    bool may_decode();

   private:
    friend class CoreBudget;
    CoreBudget& budget_;
    Role role_;
    int number_;  // among those of its role
    bool gives_way_ = false;
  };
  /// The calling thread decodes a record while this lives.
  class Decoding {
   public:
    explicit Decoding(CoreBudget& budget) : budget_(budget) { budget_.change_busy(1); }
    ~Decoding() { budget_.change_busy(-1); }
    Decoding(const Decoding&) = delete;
    Decoding& operator=(const Decoding&) = delete;

   private:
    CoreBudget& budget_;
  };

  void note_reduction(std::chrono::nanoseconds took, std::size_t bytes) noexcept override;
  /// What was since the last call, and the governor's decision on it; to be called once a second.
  CoreUse observe(double consumer_wait);

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct MemberClock {
    Role role = Role::decodes;
    clockid_t clock{};
    double last = 0;  // seconds of CPU time, when it was last looked at
  };

  void change_busy(int by) noexcept;
  void add_cpu_time(MemberClock& member);
  int enter(Member& member);
  void leave(Member& member) noexcept;
  bool may_decode(int number, Time now);

  const CorePlan plan_;
  std::atomic<int> decoders_;  // relaxed, as the next: a thread that sees them late loses nothing
  std::atomic<bool> give_way_{false};
  mutable std::mutex mutex_;  // guards all below; held for less than a microsecond
  std::map<const Member*, MemberClock> members_;
  std::map<int, const Member*> decoding_members_;
  BusyHistory decoding_;
  ReductionSlowdown slowdown_;
  CoreGovernor governor_;
  QuietProbe probe_;
  CoreUse use_;
  Time observed_{};
};

}  // namespace sprat::io
