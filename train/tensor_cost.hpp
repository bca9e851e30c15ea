// What cutting layers among ranks costs in messages. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "sprat/tensor.hpp"
#include "train/pipeline_plan.hpp"

namespace sprat::train {

/// What the tensor ranks at one place in a pipeline exchange in a step, without sums of norms'
/// gradients, if each micro-batch has so many rows.
tensor::Traffic tensor_traffic(const TrainConfig& config, const PipelinePlan& plan,
                               int pipeline_rank, int rows);

/// For people, if ranks that share layers are on several hosts, whose dense indices are by rank:
/// what that sends, and what sends less.
std::optional<std::string> tensor_warning(const TrainConfig& config, const PipelinePlan& plan,
                                          std::span<const int> hosts);

}  // namespace sprat::train
