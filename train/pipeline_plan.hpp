// What every rank of a job is to do, from its configuration and the number of ranks: where it
// stands, which layers it has, in which order it computes. Pure.
#pragma once

#include <string>
#include <vector>

#include "sprat/fsdp.hpp"
#include "sprat/layout.hpp"
#include "sprat/pipeline.hpp"
#include "train/config/config.hpp"
#include "train/data/batches.hpp"
#include "train/model/gpt.hpp"
#include "train/model/gpt_passes.hpp"

namespace sprat::train {

struct PipelinePlan {
  ParallelLayout layout;
  std::vector<int> first_layer;  ///< Of each stage.
  mp::Schedule schedule, evaluation;
};

/// Throws Error{invalid_argument} with the values and the nearest that works for everything that
/// does not go together.
PipelinePlan plan_pipeline(const TrainConfig& config, int ranks);

/// The first layer of each of `stages` stages of the configuration's model. Throws as above.
std::vector<int> cut_model(const TrainConfig& config, int stages);

/// Lines for people: schedule, and the layers of each stage; none without a pipeline.
std::string pipeline_text(const TrainConfig& config, const PipelinePlan& plan);

/// What the ranks have of the model that stand at one place in a pipeline and a tensor group.
GptPlacement placement_of(const TrainConfig& config, const PipelinePlan& plan,
                          const ParallelCoordinate& place);

/// One rank's part of a plan.
struct RankPlan {
  ParallelCoordinate coordinate;
  BatchShare share;
  GptPlacement placement;
  std::vector<mp::Action> actions;  ///< What it computes in a step.
  FsdpOptions sharding;             ///< With its visits.
  bool has_first_stage = false, has_last_stage = false;
  bool tells_loss = false;  ///< For its copy of the model, where several ranks have the same one.
};
RankPlan plan_of_rank(const TrainConfig& config, const PipelinePlan& plan, int rank);

}  // namespace sprat::train
