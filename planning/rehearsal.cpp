// Schedules and cuts by mp's planners, units and visits in the form of fsdp's.
#include "planning/rehearsal.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "fsdp/plan/layout.hpp"
#include "mp/handovers.hpp"
#include "mp/passes/passes.hpp"
#include "sprat/partition.hpp"

namespace sprat::planning {
namespace {

/// Elements of the message that stands for all when slots are counted: many more than its header.
constexpr std::size_t message_elements = 1 << 20;

}  // namespace

const std::vector<LayerCost>& Rehearsals::layers(int tensor) {
  const auto found = layers_.find(tensor);
  return found != layers_.end()
             ? found->second
             : layers_
                   .emplace(tensor, layer_costs(request_.model, request_.sequence,
                                                request_.precision, tensor))
                   .first->second;
}

const std::vector<StageRange>& Rehearsals::stages(int pipeline) {
  if (const auto found = stages_.find(pipeline); found != stages_.end()) {
    return found->second;
  }
  // Balanced by time alone: where memory decides, the search finds out by another degree.
  std::vector<mp::ModelPiece> pieces;
  for (const LayerCost& layer : layers(1)) {
    pieces.push_back({.name = layer.name,
                      .time = layer.forward_flops,
                      .parameter_bytes = layer.parameters,
                      .activation_bytes = layer.tape_bytes,
                      .output_bytes = 0,
                      .shared = {}});
  }
  std::vector<StageRange> ranges;
  for (const mp::ChainStage& stage : mp::cut_chain(pieces, {.stages = pipeline})) {
    ranges.push_back({static_cast<int>(stage.begin), static_cast<int>(stage.end)});
  }
  return stages_.emplace(pipeline, std::move(ranges)).first->second;
}

const mp::Schedule& Rehearsals::schedule(int pipeline, int microbatches) {
  const std::pair key{pipeline, microbatches};
  if (const auto found = schedules_.find(key); found != schedules_.end()) {
    return found->second;
  }
  return schedules_
      .emplace(
          key,
          mp::make_schedule(
              {.kind = "interleaved",
               .shape = {.ranks = pipeline, .microbatches = microbatches, .stages_per_rank = 1}}))
      .first->second;
}

const std::vector<double>& Rehearsals::message_slots(int pipeline, int microbatches) {
  const std::pair key{pipeline, microbatches};
  if (const auto found = message_slots_.find(key); found != message_slots_.end()) {
    return found->second;
  }
  std::vector<double> slots(static_cast<std::size_t>(pipeline), 0);
  if (pipeline > 1) {
    // Slots are of whole outputs, and all outputs are alike, so they are counted once for any size.
    const mp::Schedule with_messages = mp::communicate(schedule(pipeline, microbatches));
    // The last stage gives nothing on.
    std::vector<std::size_t> elements(static_cast<std::size_t>(pipeline), message_elements);
    elements.back() = 0;
    const int ahead = PipelineOptions{}.messages_ahead;
    for (int rank = 0; rank < pipeline; ++rank) {
      const auto bytes = static_cast<double>(
          mp::plan_handovers(with_messages, rank, elements, ahead).slots.total());
      slots[static_cast<std::size_t>(rank)] =
          bytes / static_cast<double>(message_elements * sizeof(float));
    }
  }
  return message_slots_.emplace(key, std::move(slots)).first->second;
}

int rehearsed_microbatches(const PlanRequest& request, const Arrangement& arrangement) {
  // One rank has a micro-batch at a time, and the second one shows what stays from the first. Of a
  // pipeline the first rank holds as many as there are stages, and SMP's default two more.
  const int shown = arrangement.pipeline == 1 ? 2 : 2 * arrangement.pipeline + 2;
  const bool tree = request.gradient_order == GradientOrder::tree;
  return std::min(arrangement.microbatches,
                  tree ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(shown))) : shown);
}

fsdp::Sharding sharding_of(const PlanRequest& request, const Arrangement& arrangement) {
  return fsdp::choose_sharding(data_ranks(request, arrangement), arrangement.strategy,
                               arrangement.strategy.starts_with("zero") ? 0 : arrangement.shards);
}

FsdpOptions options_of(const PlanRequest& request, const Arrangement& arrangement,
                       int microbatches) {
  // What is not said has the library's default, as in a run that does not say it.
  FsdpOptions options;
  options.strategy = arrangement.strategy;
  options.hybrid_shard_degree = arrangement.shards;
  options.prefetch_units = request.prefetch_units;
  options.parameter_dtype = request.precision;
  options.gradient_wire = request.wire;
  options.micro_steps = microbatches;
  options.gradient_order = request.gradient_order;
  // As fsdp completes its options: two hops would add ranks before micro-batches.
  options.accumulate =
      request.gradient_order == GradientOrder::tree ? Accumulate::local : options.accumulate;
  return options;
}

std::vector<Visit> visits_of(const StageRange& stage, const std::vector<mp::Action>& actions) {
  std::vector<Visit> visits;
  const int units = stage.end - stage.first;
  for (const mp::Action& action : actions) {
    const bool forward = action.op == mp::Op::forward;
    // A block that is computed once more is right before its own backward, one use of its unit.
    for (int at = 0; at < units; ++at) {
      visits.push_back({.unit = forward ? at : units - 1 - at,
                        .pass = forward ? VisitPass::forward : VisitPass::backward,
                        .microbatch = action.microbatch});
    }
  }
  return visits;
}

fsdp::Visits units_of(Rehearsals& rehearsals, const Arrangement& arrangement,
                      const StageRange& stage, const std::vector<mp::Action>& actions) {
  const PlanRequest& request = rehearsals.request();
  const fsdp::Sharding sharding = sharding_of(request, arrangement);
  // A unit is padded so that each part is as long: by the engine's rule, in the engine's function.
  const int parts = fsdp::optimizer_part(sharding, 0).parts;
  const std::vector<LayerCost>& layers = rehearsals.layers(arrangement.tensor);
  fsdp::Visits order{.units = {},
                     .step = visits_of(stage, actions),
                     .ahead = request.prefetch_units,
                     .micro_steps = rehearsed_microbatches(request, arrangement)};
  for (int layer = stage.first; layer < stage.end; ++layer) {
    const LayerCost& cost = layers[static_cast<std::size_t>(layer)];
    // One flat parameter: padding goes by the unit, and alignment inside of it is below a page.
    const UnitSpec unit{.name = cost.name,
                        .parameters = {{.name = cost.name,
                                        .shape = {static_cast<std::int64_t>(cost.parameters)},
                                        .initial = {}}}};
    order.units.push_back(cost.name);
    order.elements.push_back(fsdp::lay_out(unit, parts).padded);
    order.values_of.push_back(layer - stage.first);
  }
  const bool has_both = stage.first == 0 && stage.end == static_cast<int>(layers.size());
  if (request.model.tied && has_both) {
    order.values_of.back() = 0;  // one matrix, with a gradient for each of its uses
  }
  return order;
}

}  // namespace sprat::planning
