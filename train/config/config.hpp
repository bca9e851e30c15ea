// What a training run is, as read from its JSON file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sprat/buffer.hpp"
#include "train/model/gpt.hpp"

namespace sprat::train {

struct DataConfig {
  std::vector<std::string> files;  ///< Text, plain or gzip. Relative to the configuration file.
  double validation_share = 0.05;  ///< The end of the text that is held out.
};

/// What parameters and gradients are held and sent as. Masters and sums are f32.
struct PrecisionConfig {
  DType parameters = DType::f32;     ///< Gathered and computed with: f32, bf16, f16.
  DType gradient_wire = DType::f32;  ///< f32, bf16, f16.
  bool stochastic_rounding = false;  ///< Of masters to narrower parameters.
  bool dynamic_loss_scale = false;
  double loss_scale = 0;  ///< Power of two it begins at; 0: 65536 if dynamic, else 1.
  double least_loss_scale = 1;
  int loss_scale_window = 1000, loss_scale_hysteresis = 2;
};

struct OptimizationConfig {
  int steps = 1000;
  int batch = 32;                     ///< Samples of a step, over all ranks and micro-steps.
  int micro_steps = 1;                ///< Forward and backward passes of a step.
  bool accumulate_two_hop = true;     ///< Else each rank adds up before the one reduction.
  double learning_rate = 1e-3;        ///< Its peak, after the warm-up, for batches of base_batch.
  int base_batch = 0;                 ///< The batch that learning_rate suits; 0: `batch`.
  double final_learning_rate = 1e-4;  ///< At the end of the cosine.
  int warmup_steps = 100;
  std::string optimizer = "adamw";
  std::map<std::string, double> optimizer_values;
  double clip_norm = 1.0;  ///< 0: no clipping.
  PrecisionConfig precision;
  std::uint64_t seed = 1;
  int validate_every = 250;     ///< Steps; 0: only at the end.
  int validation_samples = 64;  ///< Of a validation on the way; the last one takes all.
  int sample_bytes = 600;       ///< Generated at the end; 0: none.
  double temperature = 0.7;
  std::string prompt = "\n";  ///< What the generated text continues.
  /// Steps in a row whose gradients are not finite, at the least loss scale, that end the run; 0:
  /// no number does.
  int max_skipped_steps = 10;
  int stop_grace_s = 10;  ///< For all ranks to agree on a stop that a signal asks for.
};

struct ParallelConfig {
  std::string strategy;         ///< A row of the placement table; empty: by the degree.
  int hybrid_shard_degree = 0;  ///< Ranks that share one copy of the model; 0: all.
  int prefetch_units = 1;
  std::size_t max_live_elements = 1'000'000'000;
  int reductions_in_flight = 1;
  std::size_t reduce_bucket_elements = 500'000'000;
  std::size_t persistence_threshold = 0;  ///< Smaller parameters stay replicated.
  /// Where optimizer state lives: "memory" or "file:FOLDER", relative to the configuration file.
  std::string state_tier = "memory", shard_tier = "memory";
};

struct CheckpointConfig {
  std::string folder;  ///< Empty: none. Relative to the configuration file.
  int every = 0;       ///< Steps; 0: only where the run ends or is stopped.
  int keep = 2;        ///< The last so many stay.
  bool asynchronous = true;
};

struct TrainConfig {
  GptShape model;
  DataConfig data;
  OptimizationConfig train;
  ParallelConfig parallel;
  CheckpointConfig checkpoint;
};

/// Parses and checks. Throws Error{invalid_argument} with one line that begins with `origin` and
/// names the key: unknown ones with what is known, wrong types, values out of range or at odds.
TrainConfig parse_train_config(std::string_view json, const std::string& origin);
/// Reads the file; data.files and checkpoint.folder become paths that can be opened. Throws
/// Error{unavailable} too.
TrainConfig read_train_config(const std::string& path);
/// Holds what depends on the number of ranks against it. Throws Error{invalid_argument}.
void check_ranks(const TrainConfig& config, int ranks);

}  // namespace sprat::train
