// Carries out a plan of activations: memory for tapes, stores behind forwards, loads ahead of
// backwards. Results are the same bits, whatever leaves and however slow the tier is.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "io/tier.hpp"
#include "memory/arena.hpp"
#include "mp/activations.hpp"
#include "sprat/trace.hpp"

namespace sprat::mp {

struct ActivationStoreOptions {
  /// A transfer that takes longer is an error, which tells the tier's rates.
  std::chrono::milliseconds patience = std::chrono::minutes(5);
  bool poison = false;  ///< Fills memory that is given back with NaNs, to show who still reads it.
  Tracer* tracer = nullptr;  ///< Where waits for the tier are noted. Outlives the store.
};

/// The activations of one rank. The caller goes through the program's steps in order, and uses
/// memory only within a step. One thread.
class ActivationStore {
 public:
  /// `tier` outlives it, and is used by nobody else. Throws Error{invalid_argument} as
  /// plan_activations() does.
  ActivationStore(ActivationProgram program, const OffloadOptions& offload, io::Tier& tier,
                  const ActivationStoreOptions& options = {});
  /// As restart().
  ~ActivationStore();
  ActivationStore(const ActivationStore&) = delete;
  ActivationStore& operator=(const ActivationStore&) = delete;

  const ActivationPlan& plan() const noexcept { return plan_; }
  const ActivationCounters& counters() const noexcept { return counters_; }
  /// Memory for tapes and beside them: at most so much was there at a time, and is by plan. The
  /// same after a whole pass, unless a tier without room made storages stay.
  std::size_t bytes_high_water() const { return arena_.high_water(); }
  std::size_t bytes_planned() const noexcept { return planned_; }

  /// Begins the next step, behind the last one the first: its storages are in memory then. Throws
  /// Error{unavailable} if a transfer has failed, Error{timeout} if one took too long; each names
  /// the tape, the tier and what to do. After an error only restart() helps.
  void begin_step();
  /// A storage of the step under way: a forward writes it, a backward finds it as it was.
  std::span<std::byte> storage(int number);
  /// By index of ActivationProgram::kept, if it is there in the step under way.
  std::span<std::byte> kept(int number);
  /// Throws as begin_step().
  void end_step();
  /// Lets go of everything, in memory and in the tier; the next step is the first.
  void restart() noexcept;

  /// Of the last whole pass. A step ends where the next one begins: what passes in between hides
  /// loads as computing does, but for waits for stores, which are no step's. Transfers take by
  /// their bytes what the tier took for all of them. Nothing if there was none, or no transfer
  /// ended in it though some were to.
  const std::optional<ActivationTimes>& times() const noexcept { return times_; }
  /// As ActivationMemory has them.
  std::optional<HorizonChoice> choose_horizon() const;
  void set_horizon(int horizon);

 private:
  enum class State : std::uint8_t { absent, resident, storing, away, loading };
  struct Held {
    State state = State::absent;
    memory::Lease memory;
    std::optional<io::Ticket> ticket;
  };

  Held& at(int number) { return held_[static_cast<std::size_t>(number)]; }
  std::span<const int> tape_of(const TapeStep& step) const;
  std::span<std::byte> bytes_of(int number);
  memory::Lease lease(int number);
  void make(int number);
  void want(int number);
  void begin_loads();
  bool load(int number);
  void finish_load(int number);
  void land(int number);
  void store(int number);
  void collect_stores();
  void end_stores_due();
  void await(int number);
  void drop(int number) noexcept;
  void end_times_of(std::size_t step);
  std::optional<ActivationTimes> times_of_pass() const;

  ActivationProgram program_;
  OffloadOptions offload_;  // its horizon is the largest
  ActivationPlan plan_;
  std::vector<memory::Buffer> buffers_;
  std::size_t planned_;  // bytes of all slots
  memory::Arena arena_;
  io::Tier& tier_;
  ActivationStoreOptions options_;
  std::vector<Held> held_;                             // by storage
  std::vector<memory::Lease> kept_;                    // by index of program_.kept
  std::vector<std::vector<int>> kept_from_, kept_to_;  // by step
  std::deque<int> storing_;                            // oldest first
  std::deque<int> to_load_;                            // wanted, but the tier takes no more now
  std::size_t next_ = 0;                               // the step that begins, or is under way
  ActivationCounters counters_;
  std::vector<double> step_seconds_;  // of the pass under way
  std::chrono::steady_clock::time_point step_begin_;
  double store_wait_before_ = 0;    // the step
  io::TierTraffic traffic_before_;  // the pass
  std::optional<ActivationTimes> times_;
};

/// One pass through a store's program: what a pass that is left early had goes with it.
class ActivationPass {
 public:
  explicit ActivationPass(ActivationStore& store) noexcept : store_(store) { store_.restart(); }
  ~ActivationPass() { store_.restart(); }
  ActivationPass(const ActivationPass&) = delete;
  ActivationPass& operator=(const ActivationPass&) = delete;

 private:
  ActivationStore& store_;
};

}  // namespace sprat::mp
