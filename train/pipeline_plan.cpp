// Degrees become a layout, layers stages, a name a schedule, and that a list of visits for each
// rank.
#include "train/pipeline_plan.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "sprat/context.hpp"
#include "sprat/partition.hpp"
#include "train/config/config_check.hpp"
#include "train/model/gpt_index.hpp"

namespace sprat::train {
namespace {

/// Sequences that can be cut, among ranks that share parameters.
void check_context_degree(const TrainConfig& config, int data) {
  const std::int64_t degree = config.pipeline.context_degree;
  const int given = config.sharding.hybrid_shard_degree;
  if (degree == 1) {
    return;
  }
  const int shard = given == 0 ? data : given;
  check(shard % degree == 0,
        "parallel.context_parallel_degree {} does not divide {}, which share parameters; take "
        "a divisor of {}, or {} {}",
        degree,
        given == 0 ? fmt::format("the {} data ranks", data)
                   : fmt::format("the {} ranks of parallel.hybrid_shard_degree", given),
        shard, (shard + degree - 1) / degree * degree,
        given == 0 ? "data ranks" : "as parallel.hybrid_shard_degree");
  try {
    context_pieces(config.model.context, config.pipeline.context_degree, 0);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("model.context {} and parallel.context_parallel_degree "
                                          "{}: {}",
                                          config.model.context, degree, error.what()));
  }
}

/// The ranks of a copy of the model, in the words of the configuration.
std::string copy_degrees(const TrainConfig& config) {
  const int pipeline = config.pipeline.degree, tensor = config.pipeline.tensor_degree;
  const std::string pipelines = fmt::format("parallel.pipeline_parallel_degree {}", pipeline);
  return tensor == 1 ? pipelines
                     : fmt::format("{} x parallel.tensor_parallel_degree {}", pipelines, tensor);
}

void check_degrees(const TrainConfig& config, int ranks) {
  const int shard = config.sharding.hybrid_shard_degree;
  const std::int64_t copy = std::int64_t{config.pipeline.degree} * config.pipeline.tensor_degree;
  check(ranks % copy == 0, "{} {} not divide the {} ranks; take a divisor of {}, or {} ranks",
        copy_degrees(config), config.pipeline.tensor_degree == 1 ? "does" : "do", ranks, ranks,
        (ranks + copy - 1) / copy * copy);
  const auto data = static_cast<int>(ranks / copy);
  const std::string among =
      copy == 1 ? fmt::format("{} ranks", ranks)
                : fmt::format("{} data ranks, which {} ranks leave in {} of {}", data, ranks,
                              config.pipeline.tensor_degree == 1 ? "pipelines" : "models", copy);
  check(shard == 0 || data % shard == 0,
        "parallel.hybrid_shard_degree {} does not divide the {}; take a divisor of {}, or 0 for "
        "all",
        shard, among, data);
  check_context_degree(config, data);
}

/// Who has samples of their own, in words.
std::string readers(const TrainConfig& config, int shares) {
  return config.pipeline.context_degree == 1
             ? fmt::format("{} data ranks", shares)
             : fmt::format("{} groups that share sequences", shares);
}

void check_batch(const TrainConfig& config, int shares) {
  const int batch = config.train.batch, microbatches = config.sharding.micro_steps;
  const std::int64_t parts = std::int64_t{shares} * microbatches;
  check(batch >= parts,
        "train.batch {} has fewer samples than there are parts, {} x {} micro-batches; take {} or "
        "more, or fewer parallel.microbatches",
        batch, readers(config, shares), microbatches, parts);
  const std::int64_t tokens = (batch + parts - 1) / parts * own_context(config);
  check(tokens <= std::numeric_limits<int>::max(),
        "train.batch {} gives each rank {} tokens of model.context {} at once, more than {}; take "
        "more parallel.microbatches",
        batch, tokens, config.model.context, std::numeric_limits<int>::max());
}

/// Ranks that read their own samples have as many each, so that a micro-batch's rows, which are
/// dealt in equal parts, are cut where their samples are.
void check_own_samples(const TrainConfig& config, int shares) {
  const int batch = config.train.batch, microbatches = config.sharding.micro_steps;
  const int degree = config.pipeline.tensor_degree;
  const std::int64_t parts = std::int64_t{shares} * microbatches * degree;
  const std::int64_t below = batch / parts * parts;
  const std::string fits =
      below == 0 ? fmt::format("{}", parts) : fmt::format("{} or {}", below, below + parts);
  check(config.pipeline.prescaled_batch || degree == 1 || batch % parts == 0,
        "parallel.prescaled_batch is false, so each tensor rank reads as many samples of its own, "
        "and train.batch {} is no multiple of {}, {} x {} micro-batches x "
        "parallel.tensor_parallel_degree {}; take {}, or prescaled_batch true",
        batch, parts, readers(config, shares), microbatches, degree, fits);
}

mp::ScheduleRequest request_of(const TrainConfig& config, int stages_per_rank) {
  return {.kind = config.pipeline.schedule,
          .shape = {.ranks = config.pipeline.degree,
                    .microbatches = config.sharding.micro_steps,
                    .stages_per_rank = stages_per_rank,
                    .active_microbatches = config.pipeline.active_microbatches}};
}

/// A schedule that is a V has two stages a rank, whatever the number of micro-batches.
int least_stages_per_rank(const TrainConfig& config) {
  mp::ScheduleRequest roomy = request_of(config, 1);
  roomy.shape.microbatches = 2 * roomy.shape.ranks;
  roomy.shape.active_microbatches = 0;
  try {
    make_schedule(roomy);
    return 1;
  } catch (const Error&) {
    return 2;
  }
}

mp::Schedule schedule_of(const TrainConfig& config) {
  const std::vector<std::string> kinds = mp::schedule_kinds();
  const std::string& kind = config.pipeline.schedule;
  check(kind == "simple" || std::ranges::count(kinds, kind) > 0,
        "parallel.pipeline is \"{}\"; it is one of simple, {}", kind, fmt::join(kinds, ", "));
  const int given = config.pipeline.stages_per_rank;
  try {
    return make_schedule(request_of(config, given > 0 ? given : least_stages_per_rank(config)));
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("parallel.pipeline: {}", error.what()));
  }
}

/// A chain as `sprat partition` knows it, so that its files fit.
std::vector<mp::ModelPiece> layers_of(const GptShape& shape) {
  return mp::gpt2_layers({.n_layer = shape.layers,
                          .n_embd = shape.width,
                          .n_head = shape.heads,
                          .vocab_size = shape.vocabulary,
                          .n_positions = shape.context});
}

std::vector<int> cut_by_names(const std::vector<std::string>& names,
                              const std::vector<mp::ModelPiece>& layers, int stages) {
  check(static_cast<int>(names.size()) == stages,
        "parallel.partition names {} first layers and there are {} stages; name one for each",
        names.size(), stages);
  std::vector<int> first;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(layers, name, &mp::ModelPiece::name);
    check(found != layers.end(),
          "parallel.partition names \"{}\", which is no layer; they are \"embedding\", \"h.0\" to "
          "\"h.{}\", \"head\"",
          name, static_cast<int>(layers.size()) - 3);
    const int layer = static_cast<int>(found - layers.begin());
    check(!first.empty() || layer == 0,
          "parallel.partition begins with \"{}\"; the first stage begins with \"embedding\"", name);
    check(
        first.empty() || layer > first.back(),
        "parallel.partition names \"{}\" behind \"{}\"; stages follow each other as layers do, so "
        "name their first layers in the model's order",
        name, first.empty() ? "" : layers[static_cast<std::size_t>(first.back())].name);
    first.push_back(layer);
  }
  return first;
}

/// Where each stage begins, if stages are in order and none is without a layer.
std::vector<int> first_layers(const std::string& source, const std::vector<int>& stage_of,
                              const std::vector<mp::ModelPiece>& layers, int stages) {
  std::vector<int> first;
  for (std::size_t layer = 0; layer < stage_of.size(); ++layer) {
    const int stage = stage_of[layer], last = static_cast<int>(first.size()) - 1;
    check(stage == last || stage == last + 1,
          "{} puts layer \"{}\" on stage {}{}; stages follow each other as layers do, so the next "
          "is {}{}",
          source, layers[layer].name, stage,
          layer == 0 ? "" : fmt::format(" behind \"{}\" on stage {}", layers[layer - 1].name, last),
          std::max(last, 0), last < 0 || last + 1 == stages ? "" : fmt::format(" or {}", last + 1));
    if (stage > last) {
      first.push_back(static_cast<int>(layer));
    }
  }
  check(static_cast<int>(first.size()) == stages,
        "{} leaves stage {} of {} without a layer; give each one at least", source, first.size(),
        stages);
  return first;
}

std::vector<int> stages_by_hand(const PartitionConfig& partition,
                                const std::vector<const mp::ModelPiece*>& layers, int stages) {
  try {
    return manual_partition(layers, partition.pins, partition.default_stage, stages);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("parallel.partition: {}", error.what()));
  }
}

std::vector<int> balanced_cut(const TrainConfig& config, const std::vector<mp::ModelPiece>& layers,
                              int stages) {
  std::vector<int> first;
  for (const mp::ChainStage& stage :
       cut_chain(layers, {.stages = stages, .microbatches = config.sharding.micro_steps})) {
    first.push_back(static_cast<int>(stage.begin));
  }
  return first;
}

/// The rank's own units in the order in which forwards alone use them.
std::vector<int> evaluation_units(const GptShape& shape, const GptPlacement& placement,
                                  const std::vector<mp::Action>& forwards) {
  const std::vector<int> own = own_units(shape, placement);
  std::vector<int> units;
  for (const mp::Action& action : forwards) {
    const LayerRange range = layers_of_stage(shape, placement, action.stage);
    for (int layer = range.first; layer < range.end; ++layer) {
      for (const int unit : units_of_layer(shape, layer)) {
        units.push_back(own[static_cast<std::size_t>(unit)]);
      }
    }
  }
  return units;
}

}  // namespace

std::vector<int> cut_model(const TrainConfig& config, int stages) {
  const PartitionConfig& partition = config.pipeline.partition;
  const std::vector<mp::ModelPiece> layers = layers_of(config.model);
  check(stages <= static_cast<int>(layers.size()),
        "parallel.pipeline_parallel_degree {} makes {} stages, and the model has {} layers (the "
        "embedding, {} blocks, the head); take at most {} stages, or model.layers {}",
        config.pipeline.degree, stages, layers.size(), config.model.layers, layers.size(),
        stages - 2);
  if (!partition.first_layers.empty()) {
    return cut_by_names(partition.first_layers, layers, stages);
  }
  std::vector<const mp::ModelPiece*> pieces;
  for (const mp::ModelPiece& layer : layers) {
    pieces.push_back(&layer);
  }
  if (!partition.file.empty()) {
    const mp::PartitionFile file = mp::parse_partition_file(partition.file, partition.file_text);
    return first_layers(partition.file, partition_from(partition.file, file, pieces, stages),
                        layers, stages);
  }
  return partition.by_hand ? first_layers("parallel.partition",
                                          stages_by_hand(partition, pieces, stages), layers, stages)
                           : balanced_cut(config, layers, stages);
}

PipelinePlan plan_pipeline(const TrainConfig& config, int ranks) {
  check_degrees(config, ranks);
  const ParallelLayout layout({.world = ranks,
                               .shard = config.sharding.hybrid_shard_degree,
                               .context = config.pipeline.context_degree,
                               .pipeline = config.pipeline.degree,
                               .tensor = config.pipeline.tensor_degree,
                               .placement = config.pipeline.placement});
  check_batch(config, layout.data_shares());
  check_own_samples(config, layout.data_shares());
  mp::Schedule schedule = schedule_of(config);
  std::vector<int> first_layer = cut_model(config, schedule.stages());
  mp::Schedule evaluation = evaluation_of(schedule);
  return {.layout = layout,
          .first_layer = std::move(first_layer),
          .schedule = std::move(schedule),
          .evaluation = std::move(evaluation)};
}

std::string pipeline_text(const TrainConfig& config, const PipelinePlan& plan) {
  std::string told;
  if (config.pipeline.tensor_degree > 1) {
    told = fmt::format("layers are cut among {} ranks, optimize \"{}\"{}\n",
                       config.pipeline.tensor_degree, optimize_text(config.pipeline.optimize),
                       config.pipeline.prescaled_batch ? "" : ", each reads its own samples");
  }
  if (config.pipeline.context_degree > 1) {
    told += fmt::format("sequences are cut among {} ranks, cp_comm_type \"{}\"\n",
                        config.pipeline.context_degree, config.pipeline.cp_comm_type);
  }
  if (plan.schedule.ranks() == 1 && plan.schedule.stages() == 1) {
    return told;
  }
  const std::vector<mp::ModelPiece> layers = layers_of(config.model);
  std::vector<std::string> stages;
  for (std::size_t stage = 0; stage < plan.first_layer.size(); ++stage) {
    const auto first = static_cast<std::size_t>(plan.first_layer[stage]);
    const std::size_t end = stage + 1 < plan.first_layer.size()
                                ? static_cast<std::size_t>(plan.first_layer[stage + 1])
                                : layers.size();
    stages.push_back(end - first == 1
                         ? layers[first].name
                         : fmt::format("{} to {}", layers[first].name, layers[end - 1].name));
  }
  return told + fmt::format("pipelines of {} ranks, schedule {}; stages: {}\n",
                            plan.schedule.ranks(), plan.schedule.name, fmt::join(stages, " | "));
}

GptPlacement placement_of(const TrainConfig& config, const PipelinePlan& plan,
                          const ParallelCoordinate& place) {
  GptPlacement placement = {
      .first_layer = plan.first_layer,
      .stages = {},
      .tensor = {.degree = config.pipeline.tensor_degree,
                 .sequence_parallel = config.pipeline.optimize == Optimize::memory},
      .tensor_rank = place.tensor,
      .context_degree = config.pipeline.context_degree,
      .context_rank = place.context};
  for (int stage = 0; stage < plan.schedule.stages(); ++stage) {
    if (plan.schedule.rank_of_stage[static_cast<std::size_t>(stage)] == place.pipeline) {
      placement.stages.push_back(stage);
    }
  }
  return placement;
}

RankPlan plan_of_rank(const TrainConfig& config, const PipelinePlan& plan, int rank) {
  RankPlan mine;
  mine.coordinate = plan.layout.coordinate(rank);
  mine.share = {.rank = plan.layout.data_share(rank),
                .ranks = plan.layout.data_shares(),
                .context_rank = mine.coordinate.context,
                .context_ranks = config.pipeline.context_degree};
  if (!config.pipeline.prescaled_batch) {
    mine.share.part = mine.coordinate.tensor;
    mine.share.parts = config.pipeline.tensor_degree;
  }
  const int place = mine.coordinate.pipeline;
  mine.placement = placement_of(config, plan, mine.coordinate);
  mine.has_first_stage = mine.placement.stages.front() == 0;
  mine.has_last_stage = mine.placement.stages.back() == plan.schedule.stages() - 1;
  mine.tells_loss = mine.has_last_stage && mine.coordinate.tensor == 0;
  mine.actions = computations_of(plan.schedule, place);
  mine.sharding = config.sharding;
  mine.sharding.visits = gpt_visits(
      config.model, {.placement = mine.placement,
                     .checkpoint_blocks = config.pipeline.activations.recomputed_together,
                     .actions = mine.actions});
  mine.sharding.evaluation =
      evaluation_units(config.model, mine.placement, computations_of(plan.evaluation, place));
  return mine;
}

}  // namespace sprat::train
