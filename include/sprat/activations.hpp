// Activations: what forwards leave for backwards, in memory whose size is known beforehand, and on
// a tier in between where that is wanted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sprat/export.hpp"
#include "sprat/trace.hpp"

namespace sprat {

/// What a layer's forward of one micro-batch leaves for its backward.
struct Tape {
  int layer = 0, microbatch = 0;
  /// Indices of ActivationProgram::storage_bytes. Views of one storage are that storage, in one
  /// tape or in several.
  std::vector<int> storages;
};

enum class TapePass : std::uint8_t { forward, backward };
inline constexpr int no_tape = -1;
/// A forward that makes a tape, or a backward that uses it; or, with no_tape, one that needs kept
/// memory alone.
struct TapeStep {
  TapePass pass{};
  int tape = 0;
  int task = 0;  ///< Which of the schedule's actions it belongs to; never falls.
};

/// Memory beside the tapes that holds something from one step to another, and never leaves.
struct KeptMemory {
  std::string name;  ///< For people.
  std::size_t bytes = 0;
  int first = 0, last = 0;  ///< Steps; it is there in both.
};

/// What one rank does with activations, in order.
struct ActivationProgram {
  std::vector<std::size_t> storage_bytes;
  std::vector<Tape> tapes;
  std::vector<TapeStep> steps;
  std::vector<KeptMemory> kept = {};
};

/// What a loading horizon counts: SMP's of v2, and of v1.
enum class HorizonUnit : std::uint8_t {
  tensors,  ///< Tapes that were loaded and are still needed, the one in use too, at most so many.
  tasks,    ///< A load begins so many tasks ahead of the one that needs it.
};
/// SMP's: 2 tensors, 4 tasks.
SPRAT_API int default_horizon(HorizonUnit unit) noexcept;

/// Which tapes leave memory, and how far ahead they come back.
struct OffloadOptions {
  HorizonUnit unit = HorizonUnit::tensors;
  int horizon = 2;
  /// A tape stays if fewer forwards and fewer backwards lie between its forward and its first
  /// backward: no trip is so short.
  int keep_last = 1;
  std::size_t min_bytes = 0;  ///< Smaller storages stay.
  /// What is loaded ahead, with what is in use, takes at most so many bytes; what is in use may.
  std::size_t max_loaded_bytes = ~std::size_t{0};
};

/// What was moved since the memory was made.
struct ActivationCounters {
  std::size_t stores = 0, loads = 0;  ///< That were begun.
  std::size_t forwarded = 0;          ///< Wanted while still in memory, so not loaded.
  std::size_t kept_for_room = 0;      ///< Stayed since the tier had no room.
  double stall_seconds = 0;           ///< Backwards waited for loads,
  double store_wait_seconds = 0;  ///< and steps for room in the tier, or for stores that were due.
};

/// What a model says that plays steps of known lengths, in the unit of the times.
struct HorizonChoice {
  int horizon = 1;
  double steps = 0;  ///< What all steps take, without stalls.
  /// What they wait for loads, and for stores to have left, with horizons 1, 2, ...
  std::vector<double> stalls;
};
/// The smallest horizon that stalls hardly longer than any: more would take memory for nothing.
/// `stalls` are those of horizons 1, 2, ..., at least one.
SPRAT_API HorizonChoice chosen_of(std::vector<double> stalls, double steps);

/// Where a model's tapes are kept between forward and backward.
struct ActivationOptions {
  /// Where tapes go between forward and backward: "memory", or "file:FOLDER". Empty: they stay.
  std::string tier = {};
  OffloadOptions offload = {};
  bool poison = false;  ///< Fills memory that is given back with NaNs, to show who still reads it.
  Tracer* tracer = nullptr;  ///< Where waits for the tier are noted. Outlives the memory.
};

namespace mp {
class ActivationStore;
}

/// The activations of one rank. The caller goes through the program's steps in order, again and
/// again, and uses memory only within a step. One thread. Values are the same bits whatever leaves.
class SPRAT_API ActivationMemory {
 public:
  /// Throws Error{invalid_argument} if a tape is used before it is made or an option makes no
  /// sense, Error{unavailable} naming a tier that cannot be used.
  explicit ActivationMemory(ActivationProgram program, const ActivationOptions& options = {});
  ~ActivationMemory();
  ActivationMemory(ActivationMemory&&) noexcept;

  /// Throws Error{unavailable} if a transfer has failed, Error{timeout} if one took too long.
  void begin_step();
  /// A storage of the tape of the step under way: a forward writes it, a backward finds it.
  std::span<std::byte> storage(int number);
  /// By index of ActivationProgram::kept, if it is there in the step under way.
  std::span<std::byte> kept(int number);
  /// Throws as begin_step().
  void end_step();
  /// Lets go of everything; the next step is the first. What a pass that failed has left.
  void restart() noexcept;

  /// Of the horizons up to that of the options, the smallest that stalls hardly longer than any, if
  /// steps and transfers take as long as in the last whole pass. In seconds. Nothing if there was
  /// none, or no transfer ended in it.
  std::optional<HorizonChoice> choose_horizon() const;
  /// Between two passes. From 1 to that of the options, whose memory is enough for less. Throws
  /// Error{invalid_argument} otherwise.
  void set_horizon(int horizon);

  /// What is planned to be in memory at most, and what has been: the same after a whole pass,
  /// unless a tier without room made activations stay.
  std::size_t bytes_planned() const noexcept;
  std::size_t bytes_high_water() const noexcept;
  const ActivationCounters& counters() const noexcept;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace sprat
