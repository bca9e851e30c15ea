// Pipelines: schedules, which say what each rank computes in which order, and the engine that plays
// one with the stages of a model.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sprat/communicator.hpp"
#include "sprat/export.hpp"

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

/// Takes time of the rank's processor, and the stage's parameters.
constexpr bool is_computation(Op op) {
  return op == Op::forward || op == Op::backward || op == Op::backward_input ||
         op == Op::backward_weight || op == Op::recompute || op == Op::overlap;
}

constexpr int no_microbatch = -1;

/// One thing that a rank does: an operation on a stage, mostly for one micro-batch.
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

/// Who computes what, in which order.
struct Schedule {
  std::string name;
  int microbatches = 0;
  std::vector<int> rank_of_stage;            ///< By stage, in the order of the model.
  std::vector<std::vector<Action>> actions;  ///< By rank, in the order they are started.

  int ranks() const noexcept { return static_cast<int>(actions.size()); }
  int stages() const noexcept { return static_cast<int>(rank_of_stage.size()); }
};

/// Tapes that leave memory between forward and backward.
struct Offload {
  /// Computations of the rank between the start of a load and the one that needs it: SMP v1's
  /// activation_loading_horizon, in pipeline tasks.
  int horizon = 4;
  /// Tapes that stay: those of the rank's last forwards before their backward.
  int keep_last = 1;
};

/// A schedule by name, with what is put into it.
struct ScheduleRequest {
  std::string kind = "interleaved";  ///< One of schedule_kinds(), or SMP's word "simple".
  PipelineShape shape = {};
  std::vector<bool> recomputed = {};  ///< By stage: computes its forwards once more. Empty: none.
  std::optional<Offload> offload = std::nullopt;  ///< Tapes go to a tier and come back.
  /// Gathers parameters of at most so many stages of a rank at once, by unshard and reshard; 0: no
  /// such actions.
  int unsharded_stages = 0;
  bool reduces = false;  ///< Sums each stage's gradients as soon as it has them all.
};

/// "1f1b" and so on.
SPRAT_API std::vector<std::string> schedule_kinds();
/// Valid, without messages: Pipeline puts those in. Pure. Throws Error{invalid_argument} with the
/// values and the nearest that works.
SPRAT_API Schedule make_schedule(const ScheduleRequest& request);
/// The forwards alone of the same micro-batches on the same stages: an evaluation. With
/// parameters gathered as in the other if unsharded_stages is not 0.
SPRAT_API Schedule evaluation_of(const Schedule& schedule, int unsharded_stages = 0);
/// What `rank` computes in its order, the two of an overlap one after the other as Pipeline does
/// them: forwards, backwards, their halves, recomputations.
SPRAT_API std::vector<Action> computations_of(const Schedule& schedule, int rank);
/// Micro-batches that `rank` holds at most between their forward and the end of their backward, one
/// for each of its stages.
SPRAT_API int most_microbatches_held(const Schedule& schedule, int rank);
/// "2F0", "1RECV_B3", "0UNSHARD".
SPRAT_API std::string to_text(const Action& action);

/// In seconds from the step's start.
struct TimeSpan {
  double start = 0, end = 0;
};

/// Where one rank's time and memory go; times in seconds.
struct RankUse {
  double busy = 0;    ///< Computing, recomputation included.
  double bubble = 0;  ///< The part of the makespan in which it does not compute.
  /// Seconds of the bubble in which messages for it or gathers of its parameters were under way, or
  /// its send was held up; and those in which a tape was being loaded. The rest is waiting for
  /// others to compute.
  double exposed_communication = 0, load_stall = 0;
  /// Micro-batches between their forward and the end of their last backward, one for each stage
  /// of the rank.
  int peak_microbatches = 0;
  std::uint64_t peak_activation_bytes = 0;
};

/// When each action of a schedule started and ended, as planned in virtual time or as it ran.
struct Timeline {
  double makespan = 0;
  double bubble = 0;  ///< The mean of the ranks'.
  std::vector<RankUse> ranks;
  /// As the schedule's actions. What goes on beside computation (messages, gathers, reductions,
  /// stores, loads) ends when it is complete, not when the rank's next action may start.
  std::vector<std::vector<TimeSpan>> spans;
  /// Of what ran on several hosts: the times of another host's ranks may be so many seconds from
  /// rank 0's at most, and from each other's twice as many. Those of a host's ranks are exact.
  double clock_error = 0;
};

/// A line of text for each rank, from left to right in time: computation only, at most `columns`
/// wide, with a line that explains the letters that occur. Dots are idle time.
SPRAT_API std::string draw(const Schedule& schedule, const Timeline& timeline, int columns = 132);
/// JSON for chrome://tracing and ui.perfetto.dev: a process for each rank, threads for what it
/// computes and for what goes on beside, times in microseconds.
SPRAT_API std::string to_trace(const Schedule& schedule, const Timeline& timeline);

}  // namespace sprat::mp

namespace sprat {

/// What one rank computes: its stages of the model. Called on one thread, the one that calls
/// Pipeline::run(), in the order of the schedule. Micro-batches are those of the step, 0 first.
/// What a function throws ends the step on every rank.
class SPRAT_API PipelineStages {
 public:
  virtual ~PipelineStages() = default;

  /// The most elements that `stage` gives to the next for one micro-batch, for stages of this rank
  /// and those right before them; the same on every rank, and for good. 0 for the last.
  virtual std::size_t most_elements(int stage) const = 0;

  /// Reads what the stage before gave (nothing on stage 0), which is there until this returns;
  /// writes into `output`, which has room for most_elements(stage). Returns how many elements it
  /// wrote.
  virtual std::size_t forward(int stage, int microbatch, std::span<const float> input,
                              std::span<float> output) = 0;
  /// Writes all of input_gradient (as many as forward's input) from output_gradient (as many as
  /// forward wrote), which is there until this returns. Adds to the weights' gradients.
  virtual void backward(int stage, int microbatch, std::span<const float> output_gradient,
                        std::span<float> input_gradient) = 0;
  /// The same without the weights' gradients...
  virtual void backward_input(int stage, int microbatch, std::span<const float> output_gradient,
                              std::span<float> input_gradient) = 0;
  /// ...which this adds, any time later.
  virtual void backward_weight(int stage, int microbatch) = 0;

  // What schedules have for those who asked for it. They do nothing unless overridden.
  /// Makes the tape again that forward dropped.
  virtual void recompute(int stage, int microbatch);
  /// Starts moving the tape to a tier, or back.
  virtual void store(int stage, int microbatch);
  virtual void load(int stage, int microbatch);
  /// Starts gathering the stage's parameters; drops them; sums its gradients over data ranks.
  virtual void unshard(int stage);
  virtual void reshard(int stage);
  virtual void reduce(int stage);
};

/// How messages of a pipeline are sent.
struct PipelineOptions {
  /// Of each message; the configuration's otherwise.
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
  /// Receives are posted so many computations before their messages are due, and sends may take so
  /// many computations longer; each costs slots, so that transfers hide behind computation.
  int messages_ahead = 2;
};

/// When one action of this rank ran; seconds of a monotonic clock.
struct ActionTime {
  /// Of a receive, while its message was waited for; of a send, until its memory was free again.
  double start = 0, end = 0;
  /// How long the rank stood still for it: all of a receive, and of a send the part in which its
  /// memory was waited for.
  double waited = 0;
};

/// One rank of a pipeline. One thread at a time.
class SPRAT_API Pipeline {
 public:
  /// Collective over `ranks`, whose rank r plays schedule.actions[r]. `stages` outlives it.
  /// Messages are put into a schedule that has none. Throws Error{invalid_argument} if it is not
  /// valid or its messages need room on their way, and on every rank Error{mismatch} naming what
  /// differs.
  Pipeline(Communicator& ranks, mp::Schedule schedule, PipelineStages& stages,
           PipelineOptions options = {});
  ~Pipeline();
  Pipeline(Pipeline&&) noexcept;
  Pipeline& operator=(Pipeline&&) noexcept;

  /// Collective: plays this rank's actions, and returns when all of them are done and its messages
  /// have arrived. Throws Error naming rank, action, stage and micro-batch if a stage throws, a
  /// message's deadline passes or the job fails; then the job is aborted, and nobody reads or
  /// writes the stages' memory any more.
  void run();

  /// With messages.
  const mp::Schedule& schedule() const noexcept;
  /// What its slots for messages take at most. They are made when first needed, and kept.
  std::size_t message_bytes() const noexcept;
  /// Of the last run, by this rank's action.
  std::span<const ActionTime> times() const noexcept;
  /// Collective: the last run of all ranks, on rank 0's clock, for mp::draw and mp::to_trace. How
  /// far apart clocks of hosts are is asked for now, so call it soon after run(). What stages
  /// waited for themselves (gathers, loads) counts as computation.
  mp::Timeline timeline();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sprat
