// A configuration in the words of the sharded model.
#include "train/sharding.hpp"

#include <bit>

namespace sprat::train {
namespace {

LossScaleOptions loss_scaling(const PrecisionConfig& precision) {
  return {.dynamic = precision.dynamic_loss_scale,
          .initial = precision.loss_scale,
          .window = precision.loss_scale_window,
          .hysteresis = precision.loss_scale_hysteresis,
          .least = precision.least_loss_scale};
}

}  // namespace

bool same_bits_on_any_row(const TrainConfig& config, int ranks) {
  return std::has_single_bit(static_cast<unsigned>(ranks)) &&
         (config.train.micro_steps == 1 || !config.train.accumulate_two_hop);
}

FsdpOptions sharding(const TrainConfig& config) {
  const OptimizationConfig& train = config.train;
  const ParallelConfig& parallel = config.parallel;
  return {.strategy = parallel.strategy,
          .hybrid_shard_degree = parallel.hybrid_shard_degree,
          .forward = gpt_forward_order(config.model),
          .backward = gpt_backward_order(config.model),
          .prefetch_units = parallel.prefetch_units,
          .max_live_elements = parallel.max_live_elements,
          .reductions_in_flight = parallel.reductions_in_flight,
          .reduce_bucket_elements = parallel.reduce_bucket_elements,
          .persistence_threshold = parallel.persistence_threshold,
          .micro_steps = train.micro_steps,
          .accumulate = train.accumulate_two_hop ? Accumulate::two_hop : Accumulate::local,
          .parameter_dtype = train.precision.parameters,
          .gradient_wire = train.precision.gradient_wire,
          .stochastic_rounding = train.precision.stochastic_rounding,
          .seed = train.seed,
          .loss_scale = loss_scaling(train.precision),
          .optimizer = {.name = train.optimizer, .values = train.optimizer_values},
          .state_tier = parallel.state_tier,
          .shard_tier = parallel.shard_tier,
          .clip_norm = static_cast<float>(train.clip_norm)};
}

}  // namespace sprat::train
