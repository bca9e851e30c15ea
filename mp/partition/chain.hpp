// The best cut of a chain of layers into stages, where a stage's memory depends on its place in the
// pipeline.
// Cost: O(p L^2) for p stages of L layers; O(p L^4) for pipeline_time where messages take time.
// Use: for models that are layers one after another. Papers: Narayanan et al., PipeDream, 2019
// (messages); Zheng et al., Alpa, 2022 (pipeline_time).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "mp/partition/piece.hpp"

namespace sprat::mp {

enum class ChainObjective {
  bottleneck,     ///< The slowest stage's time.
  pipeline_time,  ///< Of a step: all stages' times, and the slowest m - 1 times more.
};

struct ChainRequest {
  int stages = 1;
  /// Stage k of p keeps activations of min(p - k, m) micro-batches, as 1F1B does.
  int microbatches = 1;
  ChainObjective objective = ChainObjective::bottleneck;
  /// What a layer's output costs both the stage that sends and the stage that receives it.
  double seconds_per_byte = 0;
  /// Bytes held for each byte of parameters. 4: the parameter, its gradient, two of Adam's.
  double state_factor = 4;
  /// By stage; one number: for each; empty: no limit.
  std::vector<double> capacity_bytes{};
};

struct ChainStage {
  std::size_t begin = 0, end = 0;  ///< Layers, the last excluded.
  double time = 0;
  double memory_bytes = 0;
};

/// The cut with the least objective; where several have it, the one whose last stages are as long
/// as can be, since the first ones hold the most activations. Each stage has a layer at least. A
/// shared parameter is held by each stage that uses it. Throws Error{invalid_argument} if no cut
/// fits, telling which stage lacks what and the least capacity with which one does.
std::vector<ChainStage> cut_chain(std::span<const ModelPiece> layers, const ChainRequest& request);

}  // namespace sprat::mp
