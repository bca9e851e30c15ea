// What a training run is, as read from its JSON file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sprat/data.hpp"
#include "sprat/fsdp.hpp"
#include "train/config/pipeline_config.hpp"
#include "train/model/gpt.hpp"

namespace sprat::train {

/// Tokens that there are where each byte is one.
inline constexpr int byte_values = 256;

/// Text that every rank has whole, or sources that a loader reads.
struct DataConfig {
  std::vector<std::string> files;  ///< Text, plain or gzip. Relative to the configuration file.
  /// Where sources are given, those, the order's shuffle, and how they are read; paths are relative
  /// as files are. All else of a loader's options follows from the run.
  LoaderOptions loader;
  std::vector<DataSource> validation_sources;  ///< What is held out of `loader`.
  std::string tokenizer;           ///< Path of its file, as files are; empty: tokens are bytes.
  double validation_share = 0.05;  ///< The end of the text that is held out.

  bool has_sources() const { return !loader.sources.empty(); }
  /// Whether tokens are bytes, as of a text without a tokenizer, or of sources of u8.
  bool is_bytes() const;
};

/// The run's own part of the section train; the rest is told to the sharded model.
struct OptimizationConfig {
  int steps = 1000;
  int batch = 32;                     ///< Samples of a step, over all ranks and micro-steps.
  double learning_rate = 1e-3;        ///< Its peak, after the warm-up, for batches of base_batch.
  int base_batch = 0;                 ///< The batch that learning_rate suits; 0: `batch`.
  double final_learning_rate = 1e-4;  ///< At the end of the schedule.
  std::string schedule = "cosine";    ///< How it falls to that: a row of train/schedules/.
  int warmup_steps = 100;
  std::string gemm = "openblas";  ///< What multiplies matrices: one of gemm_backend_kinds().
  int validate_every = 250;       ///< Steps; 0: only at the end.
  int validation_samples = 64;    ///< Of a validation on the way; the last one takes all.
  int sample_bytes = 600;         ///< Generated at the end; 0: none.
  double temperature = 0.7;
  std::string prompt = "\n";  ///< What the generated text continues.
  /// Steps in a row whose gradients are not finite, at the least loss scale, that end the run; 0:
  /// no number does.
  int max_skipped_steps = 10;
  int stop_grace_s = 10;  ///< For all ranks to agree on a stop that a signal asks for.
};

struct CheckpointConfig {
  std::string folder;  ///< Empty: none. Relative to the configuration file.
  int every = 0;       ///< Steps; 0: only where the run ends or is stopped.
  int keep = 2;        ///< The last so many stay.
  bool asynchronous = true;
};

struct TrainConfig {
  GptShape model;  ///< With a tokenizer its vocabulary is 0 until fit_vocabulary(), unless given.
  DataConfig data;
  OptimizationConfig train;
  /// The section parallel, and of train what the sharded model does: micro-steps, precision,
  /// optimizer, clipping. Its visits are the model's, and its seed is that of the whole run. Of the
  /// tiers, "file:FOLDER" is relative to the configuration file.
  FsdpOptions sharding = {.seed = 1};
  PipelineConfig pipeline;  ///< Its micro-batches are sharding.micro_steps.
  CheckpointConfig checkpoint;
};

/// Parses and checks. Throws Error{invalid_argument} with one line that begins with `origin` and
/// names the key: unknown ones with what is known, wrong types, values out of range or at odds.
TrainConfig parse_train_config(std::string_view json, const std::string& origin);
/// Reads the file, and the one that says where the model is cut, if any; data.files and
/// checkpoint.folder become paths that can be opened. Throws
/// Error{unavailable} too.
TrainConfig read_train_config(const std::string& path);
/// Tokens that a rank has of each sequence.
inline int own_context(const TrainConfig& config) {
  return config.model.context / config.pipeline.context_degree;
}
/// Lets the model know so many tokens: model.vocabulary becomes that, unless the configuration
/// gives more. Throws Error{invalid_argument} if it gives less.
void fit_vocabulary(TrainConfig& config, int tokens);
/// Whether losses are the same to the bit under any strategy and degree of so many data ranks, each
/// of them context_degree ranks that share sequences: level D2 of docs/fsdp.md.
bool same_bits_on_any_row(const TrainConfig& config, int data_ranks);
/// Whether they also are those of any other such run of as many micro-batches over all ranks: D3.
bool same_bits_however_shared(const TrainConfig& config, int data_ranks);

}  // namespace sprat::train
