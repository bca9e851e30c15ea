// The configuration's keys, and what they may be.
#include "train/config.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numbers>
#include <set>

#include "train/json_section.hpp"

namespace sprat::train {
namespace {

template <class... Args>
void check(bool holds, fmt::format_string<Args...> message, Args&&... args) {
  if (!holds) {
    throw Error(ErrorCode::invalid_argument, fmt::format(message, std::forward<Args>(args)...));
  }
}

void check_at_least(const char* key, int value, int least) {
  check(value >= least, "{} is {}; it is at least {}", key, value, least);
}

void read_model(const nlohmann::json& root, GptShape& model) {
  JsonSection section(root, "model");
  section.read("layers", model.layers);
  section.read("width", model.width);
  section.read("heads", model.heads);
  section.read("context", model.context);
  section.end();
  check_at_least("model.layers", model.layers, 1);
  check_at_least("model.width", model.width, 1);
  check_at_least("model.heads", model.heads, 1);
  check_at_least("model.context", model.context, 2);
  check(model.width % model.heads == 0,
        "model.width {} is not a multiple of model.heads {}; each head takes an equal share",
        model.width, model.heads);
}

void read_data(const nlohmann::json& root, DataConfig& data) {
  JsonSection section(root, "data");
  section.read("files", data.files);
  section.read("validation_share", data.validation_share);
  section.end();
  check(!data.files.empty(), "data.files is missing or empty; it lists the text files to learn");
  check(data.validation_share > 0 && data.validation_share < 1,
        "data.validation_share is {}; it is between 0 and 1", data.validation_share);
}

void read_rates(JsonSection& section, OptimizationConfig& train) {
  const double default_ratio = train.final_learning_rate / train.learning_rate;
  section.read("learning_rate", train.learning_rate);
  train.final_learning_rate = train.learning_rate * default_ratio;
  section.read("final_learning_rate", train.final_learning_rate);
  section.read("weight_decay", train.weight_decay);
  section.read("beta1", train.beta1);
  section.read("beta2", train.beta2);
  section.read("clip_norm", train.clip_norm);
  check(train.learning_rate > 0, "train.learning_rate is {}; it is above 0", train.learning_rate);
  check(train.final_learning_rate >= 0 && train.final_learning_rate <= train.learning_rate,
        "train.final_learning_rate is {}; it is from 0 to train.learning_rate, {}",
        train.final_learning_rate, train.learning_rate);
  check(train.weight_decay >= 0, "train.weight_decay is {}; it is 0 or more", train.weight_decay);
  check(train.beta1 >= 0 && train.beta1 < 1, "train.beta1 is {}; it is in [0, 1)", train.beta1);
  check(train.beta2 >= 0 && train.beta2 < 1, "train.beta2 is {}; it is in [0, 1)", train.beta2);
  check(train.clip_norm >= 0, "train.clip_norm is {}; it is 0 (none) or more", train.clip_norm);
}

void read_train(const nlohmann::json& root, OptimizationConfig& train) {
  JsonSection section(root, "train");
  section.read("steps", train.steps);
  section.read("batch", train.batch);
  read_rates(section, train);
  train.warmup_steps = std::min(train.warmup_steps, train.steps / 10);
  section.read("warmup_steps", train.warmup_steps);
  section.read("seed", train.seed);
  section.read("validate_every", train.validate_every);
  section.read("validation_samples", train.validation_samples);
  section.read("sample_bytes", train.sample_bytes);
  section.read("temperature", train.temperature);
  section.read("prompt", train.prompt);
  section.end();
  check_at_least("train.steps", train.steps, 1);
  check_at_least("train.batch", train.batch, 1);
  check_at_least("train.warmup_steps", train.warmup_steps, 0);
  check(train.warmup_steps < train.steps,
        "train.warmup_steps is {}, train.steps is {}; the warm-up is the shorter",
        train.warmup_steps, train.steps);
  check_at_least("train.validate_every", train.validate_every, 0);
  check_at_least("train.validation_samples", train.validation_samples, 1);
  check_at_least("train.sample_bytes", train.sample_bytes, 0);
  check(train.temperature > 0, "train.temperature is {}; it is above 0", train.temperature);
  check(!train.prompt.empty(), "train.prompt is empty; generation continues at least one byte");
}

void read_parallel(const nlohmann::json& root, ParallelConfig& parallel) {
  JsonSection section(root, "parallel");
  section.read("hybrid_shard_degree", parallel.hybrid_shard_degree);
  section.read("prefetch_units", parallel.prefetch_units);
  section.end();
  check_at_least("parallel.hybrid_shard_degree", parallel.hybrid_shard_degree, 1);
  check_at_least("parallel.prefetch_units", parallel.prefetch_units, 0);
}

/// Parses, and refuses a key that an object has twice: which of its values was meant?
nlohmann::json parse_json(std::string_view json) {
  std::vector<std::set<std::string>> open;  // the keys so far of each object we are in
  const auto watch = [&open](int, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    if (event == nlohmann::json::parse_event_t::object_start) {
      open.emplace_back();
    } else if (event == nlohmann::json::parse_event_t::object_end) {
      open.pop_back();
    } else if (event == nlohmann::json::parse_event_t::key) {
      const auto key = parsed.get<std::string>();
      check(open.back().insert(key).second, "key \"{}\" is given twice", key);
    }
    return true;
  };
  return nlohmann::json::parse(json, watch, true, /*ignore_comments=*/true);
}

TrainConfig parse(std::string_view json) {
  const auto root = parse_json(json);
  check(root.is_object(), "this is no object of sections, {{...}}");
  const std::vector<std::string> sections = {"model", "data", "train", "parallel"};
  for (const auto& [key, value] : root.items()) {
    if (std::find(sections.begin(), sections.end(), key) == sections.end()) {
      refuse_key("the configuration", key, sections);
    }
  }
  TrainConfig config;
  read_model(root, config.model);
  read_data(root, config.data);
  read_train(root, config.train);
  read_parallel(root, config.parallel);
  return config;
}

}  // namespace

TrainConfig parse_train_config(std::string_view json, const std::string& origin) {
  try {
    return parse(json);
  } catch (const nlohmann::json::parse_error& error) {
    std::string message = error.what();
    std::replace(message.begin(), message.end(), '\n', ' ');
    throw Error(ErrorCode::invalid_argument, origin + ": " + message);
  } catch (const Error& error) {
    throw Error(error.code(), origin + ": " + error.what());
  }
}

TrainConfig read_train_config(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw Error(ErrorCode::unavailable,
                fmt::format("cannot open configuration {}: {}", path, std::strerror(errno)));
  }
  const std::string json((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  TrainConfig config = parse_train_config(json, path);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  for (std::string& name : config.data.files) {
    name = (folder / name).string();  // an absolute name replaces the folder
  }
  return config;
}

void check_ranks(const TrainConfig& config, int ranks) {
  const int batch = config.train.batch, degree = config.parallel.hybrid_shard_degree;
  check(batch % ranks == 0,
        "train.batch {} does not divide among {} ranks; make it a multiple of {}, such as {}",
        batch, ranks, ranks, (batch + ranks - 1) / ranks * ranks);
  check(ranks % degree == 0,
        "parallel.hybrid_shard_degree {} does not divide the {} ranks; take a divisor of {}",
        degree, ranks, ranks);
}

double learning_rate(const OptimizationConfig& config, int step) {
  if (step < config.warmup_steps) {
    return config.learning_rate * (step + 1) / config.warmup_steps;
  }
  const double done = std::min(
      1.0, static_cast<double>(step - config.warmup_steps) / (config.steps - config.warmup_steps));
  const double share = 0.5 * (1.0 + std::cos(std::numbers::pi * done));
  return config.final_learning_rate + share * (config.learning_rate - config.final_learning_rate);
}

}  // namespace sprat::train
