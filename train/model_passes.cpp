// The pipeline's engine plays; this fills in micro-batches and reads clocks.
#include "train/model_passes.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "sprat/error.hpp"
#include "train/loading_horizon.hpp"

namespace sprat::train {
namespace {

/// Batches as the model takes them.
std::vector<MicroBatch> microbatches_of(std::span<const Batch> batches, int length) {
  std::vector<MicroBatch> microbatches;
  for (const Batch& batch : batches) {
    microbatches.push_back({.length = length, .tokens = batch.inputs, .targets = batch.targets});
  }
  return microbatches;
}

ActivationOptions activation_options(const ActivationConfig& config, Tracer* tracer) {
  if (!config.offload) {
    return {};
  }
  return {.tier = config.tier,
          .offload = {.unit = config.unit,
                      .horizon = largest_horizon(config),
                      .keep_last = config.keep_last},
          .poison = false,
          .tracer = tracer};
}

GptStages make_stages(const TrainConfig& config, ModelPart& part, int samples,
                      std::shared_ptr<const GemmBackend> gemm, Parameters& parameters) {
  const RankPlan& mine = part.mine();
  try {
    return {
        config.model,
        {.placement = mine.placement,
         .group = &part.tensor_group(),
         .context_ranks = part.context_ranks(),
         .context = {.cp_comm_type = config.pipeline.cp_comm_type},
         .max_tokens = samples * own_context(config),
         .microbatches = config.sharding.micro_steps,
         .actions = mine.actions,
         .checkpoint_blocks = config.pipeline.activations.recomputed_together,
         .activations = activation_options(config.pipeline.activations, part.pipeline().tracer())},
        std::move(gemm),
        parameters};
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {  // of a length, or for want of memory
    throw Error(ErrorCode::unavailable,
                fmt::format("no memory for the activations of {} samples of {} tokens, which each "
                            "rank computes at once; take more parallel.microbatches, a smaller "
                            "train.batch or model.context, or parallel.activation_checkpointing",
                            samples, own_context(config)));
  }
}

}  // namespace

ModelPasses::ModelPasses(ModelPart& part, const TrainConfig& config,
                         std::shared_ptr<const GemmBackend> gemm, int samples_at_once)
    : part_(part),
      length_(own_context(config)),
      parameters_(part.model(), part.units(), config.sharding.parameter_dtype),
      stages_(make_stages(config, part, samples_at_once, std::move(gemm), parameters_)),
      training_(part.pipeline(), part.plan().schedule, stages_),
      evaluation_(part.pipeline(), part.plan().evaluation, stages_) {}

std::span<const double> ModelPasses::train(std::span<const Batch> microbatches, float loss_scale) {
  stages_.begin_step(microbatches_of(microbatches, length_), loss_scale);
  training_.run();
  before_ = std::exchange(after_, stages_.counters());
  return part_.mine().tells_loss ? stages_.losses() : std::span<const double>();
}

std::vector<double> ModelPasses::evaluate(std::span<const Batch> microbatches) {
  stages_.begin_evaluation(microbatches_of(microbatches, length_));
  evaluation_.run();
  std::vector<double> losses;
  for (int microbatch = 0;
       part_.mine().tells_loss && std::cmp_less(microbatch, microbatches.size()); ++microbatch) {
    const std::span<const double> of_one = stages_.sequence_losses(microbatch);
    losses.insert(losses.end(), of_one.begin(), of_one.end());
  }
  return losses;
}

/// Of this rank's own clock: no message is spent on what is told every step.
PassTimes ModelPasses::times() const {
  const auto& actions =
      training_.schedule().actions[static_cast<std::size_t>(part_.mine().coordinate.pipeline)];
  const std::span<const ActionTime> times = training_.times();
  PassTimes sum{.load_stall_s = after_.stall_seconds - before_.stall_seconds,
                .store_wait_s = after_.store_wait_seconds - before_.store_wait_seconds};
  double first = times.empty() ? 0 : times[0].start, last = first, busy = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    first = std::min(first, times[i].start);
    last = std::max(last, times[i].end);
    sum.message_wait_s += mp::is_computation(actions[i].op) ? 0 : times[i].waited;
    busy += mp::is_computation(actions[i].op) ? times[i].end - times[i].start - times[i].waited : 0;
  }
  busy -= sum.load_stall_s + sum.store_wait_s;
  sum.idle = last > first ? 1 - busy / (last - first) : 0;
  return sum;
}

RankMemory ModelPasses::memory() const {
  const MemoryPlan& plan = part_.model().memory_plan();
  return {.states = plan.kept,
          .parameters = plan.parameter_slots + parameters_.bytes_planned(),
          .gradients = plan.gradient_slots,
          .activations = stages_.bytes_planned(),
          .messages = training_.message_bytes() + evaluation_.message_bytes(),
          .text = 0};
}

}  // namespace sprat::train
