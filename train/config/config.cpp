// The configuration's keys, and what they may be.
#include "train/config/config.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "comm/base/json_section.hpp"
#include "comm/base/strict_json.hpp"
#include "sprat/mp.hpp"
#include "sprat/wire.hpp"
#include "train/config/config_check.hpp"
#include "train/schedule.hpp"

namespace sprat::train {
namespace {

// More than any model has, and so few that sizes computed from them are numbers.
constexpr int most_layers = 1 << 16, most_extent = 1 << 20, most_tokens = 1 << 24;

void read_model(const nlohmann::json& root, GptShape& model) {
  JsonSection section(root, "model");
  section.read("layers", model.layers);
  section.read("width", model.width);
  section.read("heads", model.heads);
  section.read("context", model.context);
  model.vocabulary = 0;  // until it is known how many tokens there are
  section.read("vocabulary", model.vocabulary);
  section.end();
  check_at_least("model.layers", model.layers, 1);
  check_at_least("model.width", model.width, 1);
  check_at_least("model.heads", model.heads, 1);
  check_at_least("model.context", model.context, 2);
  check_at_least("model.vocabulary", model.vocabulary, 0);
  check_at_most("model.vocabulary", model.vocabulary, most_tokens);
  check_at_most("model.layers", model.layers, most_layers);
  check_at_most("model.width", model.width, most_extent);
  check_at_most("model.context", model.context, most_extent);
  check(model.width % model.heads == 0,
        "model.width {} is not a multiple of model.heads {}; each head takes an equal share",
        model.width, model.heads);
}

void read_rates(JsonSection& section, OptimizationConfig& train) {
  const double default_ratio = train.final_learning_rate / train.learning_rate;
  section.read("learning_rate", train.learning_rate);
  section.read("base_batch", train.base_batch);
  check(train.learning_rate > 0, "train.learning_rate is {}; it is above 0", train.learning_rate);
  check_at_least("train.base_batch", train.base_batch, 0);
  const double peak = peak_learning_rate(train);
  // Whoever gives only the peak gets the default's ratio to it, not an end that may lie above.
  train.final_learning_rate = peak * default_ratio;
  section.read("final_learning_rate", train.final_learning_rate);
  check(train.final_learning_rate >= 0 && train.final_learning_rate <= peak,
        "train.final_learning_rate is {}; it is from 0 to the peak, {}", train.final_learning_rate,
        peak);
  section.read("schedule", train.schedule);
  schedule_named(train.schedule);
  // The default is for long runs; a short one warms up for a tenth of its steps.
  train.warmup_steps = std::min(train.warmup_steps, train.steps / 10);
  section.read("warmup_steps", train.warmup_steps);
  check_at_least("train.warmup_steps", train.warmup_steps, 0);
  check(train.warmup_steps < train.steps,
        "train.warmup_steps is {}, train.steps is {}; the warm-up is the shorter",
        train.warmup_steps, train.steps);
}

void read_accumulation(JsonSection& section, FsdpOptions& sharding) {
  section.read("micro_steps", sharding.micro_steps);
  check_at_least("train.micro_steps", sharding.micro_steps, 1);
  std::string accumulate = "two_hop";
  section.read("accumulate", accumulate);
  check(accumulate == "two_hop" || accumulate == "local",
        "train.accumulate is \"{}\"; it is \"two_hop\" (reduce-scatter in each micro-step) or "
        "\"local\" (each rank adds up first)",
        accumulate);
  sharding.accumulate = accumulate == "two_hop" ? Accumulate::two_hop : Accumulate::local;
}

void read_optimizer(JsonSection& section, OptimizerOptions& options) {
  JsonSection optimizer = section.section("optimizer");
  optimizer.read("name", options.name);
  options.values = optimizer.numbers();
}

void read_clipping(JsonSection& section, FsdpOptions& sharding) {
  double norm = sharding.clip_norm;
  section.read("clip_norm", norm);
  check(norm >= 0, "train.clip_norm is {}; it is 0 (none) or more", norm);
  sharding.clip_norm = static_cast<float>(norm);
}

void read_gemm(JsonSection& section, std::string& gemm) {
  section.read("gemm", gemm);
  const std::vector<std::string> known = gemm_backend_kinds();
  check(std::ranges::count(known, gemm) > 0, "train.gemm is \"{}\"; it is \"{}\"", gemm,
        fmt::join(known, "\" or \""));
}

void read_text_generation(JsonSection& section, OptimizationConfig& train) {
  section.read("sample_bytes", train.sample_bytes);
  section.read("temperature", train.temperature);
  section.read("prompt", train.prompt);
  check_at_least("train.sample_bytes", train.sample_bytes, 0);
  check(train.temperature > 0, "train.temperature is {}; it is above 0", train.temperature);
  check(!train.prompt.empty(), "train.prompt is empty; generation continues at least one byte");
}

void read_train(const nlohmann::json& root, OptimizationConfig& train, FsdpOptions& sharding) {
  JsonSection section(root, "train");
  section.read("steps", train.steps);
  section.read("batch", train.batch);
  check_at_least("train.steps", train.steps, 1);
  check_at_least("train.batch", train.batch, 1);
  read_accumulation(section, sharding);
  read_rates(section, train);
  read_optimizer(section, sharding.optimizer);
  read_clipping(section, sharding);
  read_precision(section, sharding);
  read_gemm(section, train.gemm);
  section.read("seed", sharding.seed);
  section.read("validate_every", train.validate_every);
  section.read("validation_samples", train.validation_samples);
  check_at_least("train.validate_every", train.validate_every, 0);
  check_at_least("train.validation_samples", train.validation_samples, 1);
  read_text_generation(section, train);
  section.read("max_skipped_steps", train.max_skipped_steps);
  check_at_least("train.max_skipped_steps", train.max_skipped_steps, 0);
  section.read("stop_grace_s", train.stop_grace_s);
  check_at_least("train.stop_grace_s", train.stop_grace_s, 1);
  section.end();
}

void read_checkpoint(const nlohmann::json& root, CheckpointConfig& checkpoint) {
  JsonSection section(root, "checkpoint");
  section.read("folder", checkpoint.folder);
  section.read("every", checkpoint.every);
  section.read("keep", checkpoint.keep);
  section.read("asynchronous", checkpoint.asynchronous);
  section.end();
  check_at_least("checkpoint.every", checkpoint.every, 0);
  check_at_least("checkpoint.keep", checkpoint.keep, 1);
  check(!checkpoint.folder.empty() || checkpoint.every == 0,
        "checkpoint.every is {} without checkpoint.folder; say where they go", checkpoint.every);
}

nlohmann::json parse_json(std::string_view json) {
  JsonKeys keys;
  const auto watch = [&](int, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    const auto again = keys.repeated(event, parsed);
    check(!again, "key \"{}\" is given twice", again.value_or(""));
    return true;
  };
  return nlohmann::json::parse(json, watch, true, /*ignore_comments=*/true);
}

TrainConfig parse(std::string_view json) {
  const auto root = parse_json(json);
  check(root.is_object(), "this is no object of sections, {{...}}");
  const std::vector<std::string> sections = {"model", "data", "train", "parallel", "checkpoint"};
  for (const auto& [key, value] : root.items()) {
    if (std::find(sections.begin(), sections.end(), key) == sections.end()) {
      refuse_key("the configuration", key, sections);
    }
  }
  TrainConfig config;
  read_model(root, config.model);
  read_data(root, config.data);
  if (config.data.is_bytes()) {
    fit_vocabulary(config, byte_values);
  }
  check(
      !config.data.has_sources() || !config.data.tokenizer.empty() || config.model.vocabulary > 0,
      "model.vocabulary is missing: files of tokens do not say how many there may be; give it, or "
      "data.tokenizer");
  read_train(root, config.train, config.sharding);
  read_parallel(root, config);
  check_tensor_degree(config);
  read_checkpoint(root, config.checkpoint);
  return config;
}

/// A pipe would wait for its writer, and a device may have no end.
std::string read_file(const char* kind, const std::string& path) {
  std::error_code unknown;
  const auto status = std::filesystem::status(path, unknown);
  const auto fail = [&](const char* what, const std::string& why) {
    throw Error(ErrorCode::unavailable, fmt::format("cannot {} {} {}: {}", what, kind, path, why));
  };
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    fail("read", std::filesystem::is_directory(status) ? "Is a directory"
                                                       : "it is a pipe or a device, no file");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    fail("open", std::strerror(errno));
  }
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

TrainConfig parse_train_config(std::string_view json, const std::string& origin) {
  try {
    return parse(json);
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::invalid_argument, origin + ": " + reason_of(error));
  } catch (const Error& error) {
    throw Error(error.code(), origin + ": " + error.what());
  }
}

TrainConfig read_train_config(const std::string& path) {
  TrainConfig config = parse_train_config(read_file("configuration", path), path);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  find_data_from(folder, config.data);
  const std::string file_tier = "file:";
  for (std::string* tier : {&config.sharding.state_tier, &config.sharding.shard_tier,
                            &config.pipeline.activations.tier}) {
    if (tier->starts_with(file_tier) && tier->size() > file_tier.size()) {
      *tier = file_tier + (folder / tier->substr(file_tier.size())).string();
    }
  }
  PartitionConfig& partition = config.pipeline.partition;
  if (!partition.file.empty()) {
    partition.file = (folder / partition.file).string();
    partition.file_text = read_file("partition file", partition.file);
  }
  if (!config.checkpoint.folder.empty()) {
    config.checkpoint.folder = (folder / config.checkpoint.folder).string();
  }
  return config;
}

void fit_vocabulary(TrainConfig& config, int tokens) {
  int& vocabulary = config.model.vocabulary;
  const std::string& tokenizer = config.data.tokenizer;
  check(vocabulary == 0 || vocabulary >= tokens,
        "model.vocabulary is {}, and {} {} tokens; leave it out, or give {} or more", vocabulary,
        tokenizer.empty() ? "bytes are" : "data.tokenizer " + tokenizer + " has", tokens, tokens);
  vocabulary = std::max(vocabulary, tokens);
}

bool same_bits_on_any_row(const TrainConfig& config, int data_ranks) {
  // Ranks that share sequences are summed over as those that have others.
  return std::has_single_bit(static_cast<unsigned>(data_ranks * config.pipeline.context_degree)) &&
         !has_block_scales(config.sharding.gradient_wire) && !config.sharding.parameter_wire &&
         (config.sharding.micro_steps == 1 || config.sharding.accumulate == Accumulate::local);
}

bool same_bits_however_shared(const TrainConfig& config, int data_ranks) {
  // A tree over ranks that share sequences adds a rank's micro-batches before those ranks.
  return config.sharding.gradient_order == GradientOrder::tree &&
         config.pipeline.context_degree == 1 && config.sharding.gradient_wire == DType::f32 &&
         same_bits_on_any_row(config, data_ranks) &&
         std::has_single_bit(static_cast<unsigned>(config.sharding.micro_steps));
}

}  // namespace sprat::train
