// One rank's stages of the GPT: forward, the gradients of inputs and of weights, on memory that is
// planned before the first step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sprat/activations.hpp"
#include "sprat/context.hpp"
#include "sprat/mp.hpp"
#include "sprat/pipeline.hpp"
#include "train/model/floats.hpp"
#include "train/model/gpt.hpp"
#include "train/model/gpt_block.hpp"
#include "train/model/gpt_memory.hpp"
#include "train/model/gpt_passes.hpp"
#include "train/model/parameters.hpp"

namespace sprat::train {

/// Sequences of `length` tokens each: whole ones, or where ranks cut them what this one has of
/// each, which is all its positions. Stages between the first and the last need neither tokens nor
/// targets; with sequence parallelism either, for their input is some rows alone.
struct MicroBatch {
  int length = 0;
  std::span<const std::int32_t> tokens = {};   ///< What the first stage reads.
  std::span<const std::int32_t> targets = {};  ///< For the last: the token after each.
};

struct GptStagesOptions {
  GptPlacement placement = {};
  /// The ranks that share its layers, and outlives the stages. Null: none, all of each is here.
  tensor::Group* group = nullptr;
  /// The ranks that have the other positions of the placement's sequences, which outlive the
  /// stages. Null: none, sequences are whole.
  Communicator* context_ranks = nullptr;
  ContextOptions context = {};
  int max_tokens = 0;  ///< The most of a micro-batch.
  /// The most of a step or of an evaluation.
  int microbatches = 1;
  /// What this rank computes in a step, in order. Empty: forward and backward of all its stages for
  /// every micro-batch in turn, as a pipeline of one rank does.
  std::vector<mp::Action> actions = {};
  /// Blocks whose activations are one checkpoint: only their input is kept, and the rest is made
  /// again before their backward. 1: SMP's "each"; whole_stage: "contiguous"; 0: all is kept.
  int checkpoint_blocks = 0;
  /// Where tapes, or the inputs of checkpoints, are between forward and backward.
  ActivationOptions activations = {};
};

/// Memory that no layer needs beyond its pass.
struct StageWorkspace {
  StageWorkspace(const GptShape& shape, const GptPlacement& placement, int rows, int sum_pieces);
  std::size_t bytes() const;

  Floats stream;       ///< The residual stream, or its gradient.
  Floats layer;        ///< Of one layer at a time.
  Floats row_numbers;  ///< Four a row, for a head that keeps nothing.
  Floats attention, exchange, row_sums, partial_gradients;  ///< GptWorkspaces.
  std::vector<double> losses;                               ///< By row.
};

/// Calls come in the order of options.actions between begin_step() and the next, or are forwards
/// alone after begin_evaluation(). The same bits for every placement, checkpoint and tier. After an
/// error only begin_step() or begin_evaluation() helps.
class GptStages final : public PipelineStages {
 public:
  /// Collective over the ranks that share sequences. `parameters`: of gpt_units(shape, seed,
  /// options.placement), and outlives this.
  GptStages(const GptShape& shape, GptStagesOptions options,
            std::shared_ptr<const GemmBackend> gemm, Parameters& parameters);

  /// The micro-batches of the step that begins, as many as options.microbatches; copied. Throws
  /// Error{invalid_argument} naming a micro-batch that does not fit. A step that was left half done
  /// goes with what it held.
  void begin_step(std::span<const MicroBatch> microbatches, float loss_scale = 1.0f);
  /// Forwards alone of at most options.microbatches, which keep nothing.
  void begin_evaluation(std::span<const MicroBatch> microbatches);
  /// By micro-batch, of the last stage's forwards so far: the sum over tokens of -log p(target),
  /// in nats, without the loss scale.
  std::span<const double> losses() const { return losses_; }
  /// The same by sequence, of a micro-batch of an evaluation. A sequence's has the same bits
  /// whichever others are beside it, where products have.
  std::span<const double> sequence_losses(int microbatch) const {
    return taken_[static_cast<std::size_t>(microbatch)].sequence_losses;
  }

  /// The logits of the token that follows `tokens`, one sequence of at most the context's length,
  /// by a rank that has all stages. Valid until the next call; ends a step that is under way.
  std::span<const float> predict(std::span<const std::int32_t> tokens);

  std::size_t most_elements(int stage) const override;
  std::size_t forward(int stage, int microbatch, std::span<const float> input,
                      std::span<float> output) override;
  void backward(int stage, int microbatch, std::span<const float> output_gradient,
                std::span<float> input_gradient) override;
  void backward_input(int stage, int microbatch, std::span<const float> output_gradient,
                      std::span<float> input_gradient) override;
  void backward_weight(int stage, int microbatch) override;
  /// Makes what the stage's checkpoints dropped ahead of its backward, which otherwise does so
  /// itself.
  void recompute(int stage, int microbatch) override;

  /// Of activations: what is planned to be in memory at most, what has been, and what moved.
  std::size_t bytes_planned() const;
  std::size_t bytes_high_water() const;
  const ActivationCounters& counters() const { return memory_.counters(); }
  /// As ActivationMemory's; set between steps.
  std::optional<HorizonChoice> choose_horizon() const { return memory_.choose_horizon(); }
  void set_horizon(int horizon);

 private:
  /// A micro-batch of the step or evaluation under way.
  struct TakenBatch {
    int rows = -1, length = 1;  // rows: -1 until a forward tells
    std::vector<std::int32_t> tokens, targets;
    std::vector<double> sequence_losses;
  };

  void take(std::span<const MicroBatch> microbatches);
  void check_microbatch(const MicroBatch& microbatch, std::size_t number) const;
  TakenBatch& at(int microbatch) { return taken_[static_cast<std::size_t>(microbatch)]; }
  const std::vector<LayerPass>& begin_action(const mp::Action& action);
  void set_rows(int stage, int microbatch, std::span<const float> input);
  /// Of what is there always.
  std::size_t fixed_bytes() const {
    return workspace_.bytes() + (context_ ? context_->memory_bytes() : 0);
  }
  tensor::Group& group() { return options_.group == nullptr ? alone_ : *options_.group; }
  GptExtents extents(int microbatch);
  GptRows run_of(int microbatch);
  const float* all_rows(const GptRows& run, const float* own, float* whole);
  float* floats(const ActivationPlace& place);
  template <class Compute>
  void use_unit(int unit, const Compute& compute);
  template <class Compute>
  void add_gradients(const LayerPass& pass, int unit, const Compute& compute);

  // The gradient of the residual stream is in workspace_.stream, from layer to layer.
  void backward_layers(const mp::Action& action, std::span<const float> output_gradient,
                       std::span<float> input_gradient);
  void forward_layer(const LayerPass& pass, const float* x, float* y);
  void backward_layer(const LayerPass& pass);
  void embed(const GptRows& run, std::span<const std::int32_t> tokens, float* y);
  void forward_block(const LayerPass& pass, const float* x, float* y);
  void forward_head(const LayerPass& pass, const float* x);
  void evaluate_layer(int layer, int microbatch, const float* x, float* y);
  void pass_block(const GptRows& run, int layer, const float* x, float* y);
  void evaluate_head(int microbatch, const float* x);
  void tell_losses(int microbatch, std::span<const double> rows);
  void recompute_block(const LayerPass& pass);
  void backward_embedding(const LayerPass& pass);
  void backward_block(const LayerPass& pass);
  void backward_block_half(const LayerPass& pass);
  void backward_head(const LayerPass& pass);

  GptShape shape_;
  GptStagesOptions options_;
  std::shared_ptr<const GemmBackend> gemm_;
  Parameters& parameters_;
  tensor::Group alone_;
  GptPlan plan_;
  std::vector<int> own_;                        // by unit of the whole model
  std::vector<std::vector<LayerPass>> passes_;  // by action
  GptMemoryPlan memory_plan_;
  std::optional<ContextAttention> context_;  // where sequences are cut, and a block is here
  ActivationMemory memory_;
  StageWorkspace workspace_;

  std::vector<TakenBatch> taken_;  // by micro-batch
  std::vector<double> losses_;
  float loss_scale_ = 1;
  std::size_t next_action_ = 0;
  bool evaluating_ = true;
};

}  // namespace sprat::train
