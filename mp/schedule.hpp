// A pipeline's schedule as data: what each rank does, in which order. Generators make the
// computation, passes insert what moves or frees memory, and the validator, the simulator, the
// drawing and the engine all read it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sprat::mp {

/// What one action does to one micro-batch on one stage. torch.distributed.pipelining's letters are
/// in brackets.
enum class Op : std::uint8_t {
  forward,           ///< [F]
  backward,          ///< Input and weight gradients at once [B].
  backward_input,    ///< The gradient of the stage's input, which the stage before waits for [I].
  backward_weight,   ///< The gradients of its parameters, any time later [W].
  recompute,         ///< The forward once more, before a backward whose tape was dropped.
  send_forward,      ///< This stage's output, to the next stage [SEND_F].
  receive_forward,   ///< This stage's input, from the stage before [RECV_F].
  send_backward,     ///< The gradient of this stage's input, to the stage before [SEND_B].
  receive_backward,  ///< The gradient of this stage's output, from the next stage [RECV_B].
  unshard,           ///< Gathers the stage's parameters; of no micro-batch [UNSHARD].
  reshard,           ///< Drops them [RESHARD].
  reduce,   ///< Sums the stage's gradients over data ranks; of no micro-batch [REDUCE_GRAD].
  store,    ///< Starts moving the micro-batch's tape to a tier.
  load,     ///< Starts bringing it back; the backward that needs it waits.
  overlap,  ///< A forward and a backward of two micro-batches, one beside the other [OVERLAP_F_B].
};

constexpr int no_microbatch = -1;

struct Action {
  Op op{};
  int stage = 0;
  int microbatch =
      no_microbatch;  ///< no_microbatch: unshard, reshard and reduce are of the stage alone.
  /// Of overlap only: the backward beside the forward that stage and microbatch name.
  int other_stage = 0, other_microbatch = no_microbatch;

  friend bool operator==(const Action&, const Action&) = default;
};

/// What a schedule is made for. Ranks are those of one pipeline, 0 first.
struct PipelineShape {
  int ranks = 1;
  int microbatches = 1;
  int stages_per_rank = 1;  ///< More than 1: virtual stages, also called chunks.
  /// How many micro-batches a rank may hold between their forward and their backward on the first
  /// stage; 0: as the schedule likes.
  int active_microbatches = 0;
};

struct Schedule {
  std::string name;
  int microbatches = 0;
  std::vector<int> rank_of_stage;            ///< By stage, in the order of the model.
  std::vector<std::vector<Action>> actions;  ///< By rank, in the order they are started.

  int ranks() const noexcept { return static_cast<int>(actions.size()); }
  int stages() const noexcept { return static_cast<int>(rank_of_stage.size()); }
};

/// A row of the table: one file of mp/schedules/.
struct ScheduleKind {
  std::string_view name;     ///< "1f1b"
  std::string_view summary;  ///< One clause for --help.
  /// Why no schedule of this kind has this shape, with the values and the nearest that works;
  /// empty: it has.
  std::string (*refusal)(const PipelineShape&);
  /// Computation only: forward, backward*, overlap. Called if there is no refusal.
  Schedule (*make)(const PipelineShape&);
  std::string_view other_name = {};  ///< That schedule_named takes, too; none if empty.
};

/// The table, in the order of the files.
const std::vector<const ScheduleKind*>& all_schedules();
/// Throws Error{invalid_argument} naming those there are.
const ScheduleKind& schedule_named(std::string_view name);
/// Throws Error{invalid_argument} if the numbers are no shape, and with the kind's refusal.
Schedule make_schedule(const ScheduleKind& kind, const PipelineShape& shape);

}  // namespace sprat::mp
