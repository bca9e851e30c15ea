// What a training run is, as read from its JSON file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "train/gpt.hpp"

namespace sprat::train {

struct DataConfig {
  std::vector<std::string> files;  ///< Text, plain or gzip. Relative to the configuration file.
  double validation_share = 0.05;  ///< The end of the text that is held out.
};

struct OptimizationConfig {
  int steps = 1000;
  int batch = 32;                     ///< Samples of a step, over all ranks.
  double learning_rate = 1e-3;        ///< Its peak, after the warm-up.
  double final_learning_rate = 1e-4;  ///< At the end of the cosine.
  int warmup_steps = 100;
  double weight_decay = 0.1;
  double beta1 = 0.9, beta2 = 0.95;
  double clip_norm = 1.0;  ///< 0: no clipping.
  std::uint64_t seed = 1;
  int validate_every = 250;     ///< Steps; 0: only at the end.
  int validation_samples = 64;  ///< Of a validation on the way; the last one takes all.
  int sample_bytes = 600;       ///< Generated at the end; 0: none.
  double temperature = 0.7;
  std::string prompt = "\n";  ///< What the generated text continues.
};

struct ParallelConfig {
  int hybrid_shard_degree = 1;  ///< Ranks that share one copy of the model.
  int prefetch_units = 1;
};

struct TrainConfig {
  GptShape model;
  DataConfig data;
  OptimizationConfig train;
  ParallelConfig parallel;
};

/// Parses and checks. Throws Error{invalid_argument} with one line that begins with `origin` and
/// names the key: unknown ones with what is known, wrong types, values out of range or at odds.
TrainConfig parse_train_config(std::string_view json, const std::string& origin);
/// Reads the file; data.files become paths that can be opened. Throws Error{unavailable} too.
TrainConfig read_train_config(const std::string& path);
/// Holds what depends on the number of ranks against it. Throws Error{invalid_argument}.
void check_ranks(const TrainConfig& config, int ranks);

/// Linear warm-up, then a cosine from the peak to the final rate; `step` from 0.
double learning_rate(const OptimizationConfig& config, int step);

}  // namespace sprat::train
