// Which activations leave memory between forward and backward, and when they come back: a plan from
// the order in which they are made and used, and a model of the time that is waited for them.
// Use: offloading, where memory is short and backward takes longer than a load.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/buffers.hpp"
#include "mp/schedule.hpp"
#include "sprat/activations.hpp"

namespace sprat::mp {

/// The layers of a stage, and what each keeps of a micro-batch.
struct StageLayers {
  int first = 0;  ///< Of the model's layers.
  std::vector<std::size_t> tape_bytes;
};
/// The program of one rank of a schedule, each computing action a task. `stages` is by stage. Each
/// tape has a storage of its own.
ActivationProgram activation_program(const Schedule& schedule, int rank,
                                     std::span<const StageLayers> stages);

/// Why a storage stays, or that it does not.
enum class StoragePlacement : std::uint8_t { offloaded, too_small, used_soon };

/// Steps are indices of ActivationProgram::steps.
struct StoragePlan {
  StoragePlacement placement = StoragePlacement::offloaded;
  int made = 0;     ///< The first forward that saves it.
  int stored = -1;  ///< Its store begins after this step, the last forward that saves it.
  int loaded = -1;  ///< Its load begins ahead of this step.
  int dropped = 0;  ///< After this step nobody needs it.
};

struct ActivationPlan {
  std::vector<StoragePlan> storages;
  std::vector<std::vector<int>> loads;   ///< By step that they begin ahead of, in this order.
  std::vector<std::vector<int>> stores;  ///< By step that they begin after.
  std::vector<std::vector<int>> drops;   ///< By step after which they are not needed any more.
  std::size_t offloaded_bytes = 0;
};

/// Pure. Loads are in the order of first use, and none begins ahead of the first backward. Throws
/// Error{invalid_argument} if a tape is used before it is made, or an option makes no sense.
ActivationPlan plan_activations(const ActivationProgram& program, const OffloadOptions& options);

/// So many steps behind its own a store may go on beside; if it has not ended by then, it is waited
/// for. So memory is known beforehand, however slow a tier is.
inline constexpr int store_steps = 2;
/// The lives in memory of the storages, their stores included, and then of what is kept beside
/// them; a moment a step.
std::vector<memory::Buffer> activation_buffers(const ActivationProgram& program,
                                               const ActivationPlan& plan);

/// Measured, or supposed, in any unit.
struct ActivationTimes {
  std::vector<double> steps;          ///< By step.
  std::vector<double> stores, loads;  ///< By storage.
};
struct StallModel {
  double stall = 0;       ///< What steps wait for loads, in all,
  double store_wait = 0;  ///< and for stores whose time is up: see store_steps.
  double total = 0;       ///< Of the whole program, with both.
  double load_busy = 0;   ///< Time that loads take.
  /// The share of loading that computing hides.
  double overlap() const { return load_busy > 0 ? 1 - stall / load_busy : 1; }
};
/// Plays a plan with one link that does a transfer at a time: loads go before stores, else in
/// order. What is still in memory when it is wanted stays there, as in ActivationStore. Stores are
/// refused by no tier for want of room.
StallModel model_stall(const ActivationProgram& program, const ActivationPlan& plan,
                       const ActivationTimes& times);

/// The smallest horizon, up to that of the options, whose stall and wait for stores are together
/// above the least by at most a hundredth of what the program then takes. options.max_loaded_bytes
/// says what memory there is for loaded tapes. Whatever a horizon needs of memory, a larger one
/// needs too.
HorizonChoice choose_horizon(const ActivationProgram& program, const OffloadOptions& options,
                             const ActivationTimes& times);

}  // namespace sprat::mp
