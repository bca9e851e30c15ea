// One rank's part of the model: its stages, sharded over the ranks that have the same, and what is
// exchanged with the other stages beside micro-batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sprat/fsdp.hpp"
#include "train/data/batches.hpp"
#include "train/pipeline_plan.hpp"

namespace sprat::train {

/// Every call that is not const is collective over the job.
class ModelPart {
 public:
  /// `world`: ranks of a host next to each other; it outlives this.
  ModelPart(Communicator& world, const TrainConfig& config);

  const PipelinePlan& plan() const { return plan_; }
  const RankPlan& mine() const { return mine_; }
  const std::vector<UnitSpec>& units() const { return units_; }
  BatchShare share() const { return mine_.share; }
  /// Of one pipeline, first stage first; one rank if the model is not cut.
  Communicator& pipeline() { return pipeline_; }
  /// Of this rank's layers: who has the other parts of them.
  tensor::Group& tensor_group() { return group_; }
  /// Who has the other positions of its sequences; null where they are whole.
  Communicator* context_ranks() { return context_ ? &*context_ : nullptr; }
  /// All that have one copy of the model: its stages and their tensor ranks. Ranks as in
  /// ParallelLayout::group().
  Communicator& copy() { return copy_; }
  ShardedModel& model() { return model_; }
  const ShardedModel& model() const { return model_; }
  std::int64_t parameter_count() const { return parameter_count_; }  ///< Of the whole model.

  /// values <- their sums, the same bits on every rank and for every degree of pipeline and tensor
  /// parallelism, if of each copy() one rank has the value and all others have 0.
  void sum_over_job(std::span<double> values);
  /// As ShardedModel::step(), of the whole model.
  StepResult step(float learning_rate, double divisor);

 private:
  void add_tied_gradients();
  double grad_norm();

  PipelinePlan plan_;
  RankPlan mine_;
  std::vector<UnitSpec> units_;
  Communicator data_, pipeline_, tensor_, copy_;
  tensor::Group group_;
  std::optional<Communicator> context_;
  ShardedModel model_;
  /// Of the first and the last stage, where two ranks have them: both have the table of tokens.
  std::optional<Communicator> ends_;
  std::int64_t parameter_count_ = 0;
};

}  // namespace sprat::train
