// Gradients of what two stages have are added, and norms of all stages are one: then each stage
// updates by itself.
#include "train/model_part.hpp"

#include <cmath>
#include <string>

#include "train/model/gpt_index.hpp"

namespace sprat::train {
namespace {

/// Ranks of a pipeline that have the first or the last stage; none if one rank has both.
std::optional<Communicator> join_ends(Communicator& pipeline, const RankPlan& mine) {
  const bool at_one_end = mine.has_first_stage != mine.has_last_stage;
  return pipeline.split(at_one_end ? 0 : -1, pipeline.rank(), "ends", Failing::together);
}

std::optional<Communicator> join_context(Communicator& world, const ParallelLayout& layout) {
  return layout.degrees().context == 1 ? std::nullopt
                                       : std::optional(split_along(world, layout, Axes::context));
}

}  // namespace

ModelPart::ModelPart(Communicator& world, const TrainConfig& config)
    : plan_(plan_pipeline(config, world.size())),
      mine_(plan_of_rank(config, plan_, world.rank())),
      units_(gpt_units(config.model, config.sharding.seed, mine_.placement)),
      data_(split_along(world, plan_.layout, Axes::data)),
      pipeline_(split_along(world, plan_.layout, Axes::pipeline)),
      tensor_(split_along(world, plan_.layout, Axes::tensor)),
      copy_(split_along(world, plan_.layout, Axes::model)),
      group_(tensor_, mine_.placement.tensor),
      context_(join_context(world, plan_.layout)),
      model_(data_, units_, mine_.sharding),
      ends_(join_ends(pipeline_, mine_)) {
  // Doubles hold all whole numbers up to 2^53, and every rank has counted its own part alone.
  double count = static_cast<double>(model_.parameter_count());
  copy_.all_reduce(elements(std::span(&count, 1))).wait();
  parameter_count_ = static_cast<std::int64_t>(count);
}

void ModelPart::sum_over_job(std::span<double> values) {
  // Adding zeros changes no bit, so within a copy of the model values only spread; along data they
  // are added as if each copy were on one rank.
  if (copy_.size() > 1) {
    copy_.all_reduce(elements(values)).wait();
  }
  model_.sum_over_ranks(values);
}

StepResult ModelPart::step(float learning_rate, double divisor) {
  model_.finish_gradients();
  add_tied_gradients();
  return model_.apply(learning_rate, grad_norm(), divisor);
}

/// Both ends add the same two numbers in one order, and so update alike.
void ModelPart::add_tied_gradients() {
  if (!ends_) {
    return;
  }
  const auto own = mine_.has_first_stage ? table_unit : static_cast<int>(units_.size()) - 1;
  ends_->all_reduce(elements(model_.summed_gradient(own))).wait();
}

/// Exact sums may be added in any order, so each rank adds its units' first.
double ModelPart::grad_norm() {
  SquareSum squares;
  for (const SquareSum& of_unit : model_.square_sums()) {
    squares += of_unit;
  }
  if (copy_.size() > 1) {
    copy_.all_reduce(words_of(std::span(&squares, 1))).wait();
  }
  return std::sqrt(squares.value());
}

}  // namespace sprat::train
