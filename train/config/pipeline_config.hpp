// How a run's model is cut over ranks, into stages of a pipeline and parts of layers: the keys of
// the section parallel that are not the sharded model's.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sprat/activations.hpp"

namespace sprat::train {

/// Where the model is cut. One of the first three at most; none: automatically.
struct PartitionConfig {
  std::vector<std::string> first_layers;  ///< Of each stage, by name.
  /// Layers by name, or by its dotted beginning, and their stages; all others are default_stage's.
  bool by_hand = false;
  std::map<std::string, int> pins;
  int default_stage = 0;
  std::string file;       ///< Of sprat partition --write. Relative to the configuration file.
  std::string file_text;  ///< What it holds; empty until it is read.
};

/// What becomes of activations between forward and backward.
struct ActivationConfig {
  /// Blocks that are computed anew together in the backward, from their first one's input; 0: none;
  /// whole_stage: all of a stage.
  int recomputed_together = 0;
  bool offload = false;  ///< They leave memory for the tier.
  HorizonUnit unit = HorizonUnit::tensors;
  int horizon = 0;        ///< 0: chosen from measured times.
  int horizon_limit = 2;  ///< The largest that may be chosen.
  int keep_last = 1;      ///< Those of so many forwards before their backward stay.
  /// "memory", or "file:FOLDER", relative to the configuration file.
  std::string tier = "memory";
};

/// SMP's word: what tensor parallelism saves.
enum class Optimize {
  memory,  ///< Ranks have their own rows outside of attention and MLP (sequence parallelism).
  speed,   ///< Each has all rows there, so less travels.
};
/// "memory", "speed".
std::string optimize_text(Optimize optimize);

struct PipelineConfig {
  int tensor_degree = 1;  ///< Ranks that layers are cut among.
  Optimize optimize = Optimize::memory;
  /// SMP's word: tensor ranks read the same samples; else each reads as many of its own.
  bool prescaled_batch = true;
  int context_degree = 1;                ///< Ranks that sequences are cut among; divides those that
                                         ///< share parameters.
  std::string cp_comm_type = "p2p";      ///< How keys and values move: ContextOptions.
  int degree = 1;                        ///< Ranks of a pipeline.
  std::string schedule = "interleaved";  ///< By name; the default is SMP's.
  int stages_per_rank = 0;               ///< 0: as few as the schedule takes.
  int active_microbatches = 0;           ///< 0: as the schedule likes.
  std::string placement = "cluster";     ///< Order of the axes D, P, T over ranks.
  PartitionConfig partition;
  ActivationConfig activations;
};

/// "none", "each", "contiguous", "group_N".
std::string recomputation_text(const ActivationConfig& activations);

}  // namespace sprat::train
