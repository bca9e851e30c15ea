// Settings as text, gathered where digests differ, and told by key.
#include "train/config/settings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "comm/base/hash.hpp"
#include "sprat/error.hpp"

namespace sprat::train {
namespace {

using Json = nlohmann::json;

constexpr std::size_t most_keys = 8;  // that a message names
constexpr std::size_t most_runs = 4;  // of ranks that it lists for a value

/// What a rank says: its settings, or why it has none.
struct Statement {
  std::optional<Error> error;
  Settings settings;
};

std::string packed(const Statement& statement) {
  if (statement.error) {
    return static_cast<char>(statement.error->code()) + std::string(statement.error->what());
  }
  return Json(statement.settings).dump(-1, ' ', false, Json::error_handler_t::replace);
}

Statement unpacked(const std::string& text, bool failed) {
  if (failed) {
    return {.error = Error(static_cast<ErrorCode>(text[0]), text.substr(1)), .settings = {}};
  }
  return {.error = {}, .settings = Json::parse(text).get<Settings>()};
}

Statement statement_of(const std::function<Settings()>& read) {
  try {
    return {.error = {}, .settings = read()};
  } catch (const Error& error) {
    return {.error = error, .settings = {}};
  } catch (const std::bad_alloc&) {
    return {.error = Error(ErrorCode::unavailable, "out of memory"), .settings = {}};
  } catch (const std::exception& error) {
    return {.error = Error(ErrorCode::internal, error.what()), .settings = {}};
  }
}

/// Settings name folders, which are another in every run.
constexpr Options of_this_run{.timeout = {}, .blocking = true, .digested = false};

/// Of fixed length, so that ranks that have read different things meet in the same call.
struct Summary {
  std::uint64_t digest = 0, bytes = 0, failed = 0;
};

std::vector<Summary> summaries(Communicator& world, const Summary& mine) {
  constexpr std::size_t words = sizeof(Summary) / sizeof(std::uint64_t);
  const std::array<std::uint64_t, words> part = {mine.digest, mine.bytes, mine.failed};
  std::vector<std::uint64_t> whole(words * static_cast<std::size_t>(world.size()));
  world.all_gather(elements(std::span(part)), elements(whole), of_this_run).wait();
  std::vector<Summary> all;
  for (std::size_t at = 0; at < whole.size(); at += words) {
    all.push_back({.digest = whole[at], .bytes = whole[at + 1], .failed = whole[at + 2]});
  }
  return all;
}

std::vector<Statement> statements(Communicator& world, const std::string& mine,
                                  const std::vector<Summary>& all) {
  std::vector<std::size_t> counts;
  std::size_t total = 0;
  for (const Summary& one : all) {
    counts.push_back(one.bytes);
    total += one.bytes;
  }
  const std::vector<std::uint8_t> part(mine.begin(), mine.end());
  std::vector<std::uint8_t> whole(total);
  world.all_gatherv(elements(std::as_const(part)), elements(whole), counts, of_this_run).wait();
  std::vector<Statement> result;
  auto at = whole.begin();
  for (const Summary& one : all) {
    const auto end = at + static_cast<std::ptrdiff_t>(one.bytes);
    result.push_back(unpacked(std::string(at, end), one.failed != 0));
    at = end;
  }
  return result;
}

[[noreturn]] void refuse_failures(const std::vector<Statement>& all) {
  std::vector<std::size_t> failed;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].error) {
      failed.push_back(rank);
    }
  }
  const Error& first = *all[failed[0]].error;
  const std::string who = failed.size() == all.size() ? ""
                          : failed.size() == 1
                              ? fmt::format("rank {}: ", failed[0])
                              : fmt::format("rank {} and {} more: ", failed[0], failed.size() - 1);
  throw Error(first.code(), who + first.what(), static_cast<int>(failed[0]));
}

/// "rank 3" or "ranks 0-2, 5".
std::string ranks_text(const std::vector<int>& ranks) {
  std::vector<std::string> runs;
  std::size_t listed = 0;
  for (std::size_t at = 0; at < ranks.size() && runs.size() < most_runs; at = listed) {
    listed = at + 1;
    while (listed < ranks.size() && ranks[listed] == ranks[listed - 1] + 1) {
      ++listed;
    }
    runs.push_back(listed == at + 1 ? fmt::format("{}", ranks[at])
                                    : fmt::format("{}-{}", ranks[at], ranks[listed - 1]));
  }
  const std::string more =
      listed == ranks.size() ? "" : fmt::format(" and {} more", ranks.size() - listed);
  return fmt::format("rank{} {}{}", ranks.size() == 1 ? "" : "s", fmt::join(runs, ", "), more);
}

/// "train.seed is 1 on ranks 0-2, 7 on rank 3"; empty if all have the same.
std::string difference(const std::string& key, const std::vector<Statement>& all) {
  std::vector<std::string> values;  // in the order of the first ranks that have them
  std::map<std::string, std::vector<int>> ranks;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const auto found = all[rank].settings.find(key);
    const std::string value = found == all[rank].settings.end() ? "not given" : found->second;
    if (ranks[value].empty()) {
      values.push_back(value);
    }
    ranks[value].push_back(static_cast<int>(rank));
  }
  std::vector<std::string> parts;
  for (const std::string& value : values) {
    parts.push_back(fmt::format("{} on {}", value, ranks_text(ranks[value])));
  }
  return values.size() == 1 ? "" : fmt::format("{} is {}", key, fmt::join(parts, ", "));
}

[[noreturn]] void refuse_differences(const std::vector<Statement>& all) {
  std::set<std::string> keys;
  for (const Statement& one : all) {
    for (const auto& [key, value] : one.settings) {
      keys.insert(key);
    }
  }
  std::vector<std::string> told;
  std::size_t differ = 0;
  for (const std::string& key : keys) {
    const std::string line = difference(key, all);
    differ += line.empty() ? 0 : 1;
    if (!line.empty() && told.size() < most_keys) {
      told.push_back(line);
    }
  }
  throw Error(
      ErrorCode::mismatch,
      fmt::format(
          "the ranks are to train with different settings: {}{}; give every rank "
          "the same configuration, text and options",
          fmt::join(told, "; "),
          differ == told.size() ? "" : fmt::format("; and {} more keys", differ - told.size())));
}

/// A tier without its folder.
std::string kind_of(const std::string& tier) { return tier.substr(0, tier.find(':')); }

std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Collects values under the keys of one section.
class Section {
 public:
  Section(Settings& settings, std::string name)
      : settings_(settings), name_(std::move(name) + ".") {}
  template <class T>
  void add(const std::string& key, const T& value) {
    settings_[name_ + key] = fmt::format("{}", value);  // of a double every bit
  }

 private:
  Settings& settings_;
  std::string name_;
};

/// Of sources all but their paths: hosts may mount a file system anywhere.
std::string sources_text(const std::vector<DataSource>& sources) {
  std::vector<std::string> told;
  for (const DataSource& source : sources) {
    told.push_back(fmt::format("{} {} {} of weight {}, separator {}", source.paths.size(),
                               source.format, source.token_type, source.weight,
                               source.separator ? std::to_string(*source.separator) : "none"));
  }
  return fmt::format("{}", fmt::join(told, ", "));
}

// As users type them, in the order of the enums.
constexpr std::array sample_words = {"auto", "records", "windows", "packed", "packed_whole"};
constexpr std::array shuffle_words = {"full", "chunks", "none"};

void add_data(Settings& settings, const DataConfig& data) {
  Section section(settings, "data");
  section.add("validation_share", data.validation_share);
  if (!data.has_sources()) {
    return;
  }
  const LoaderOptions& loader = data.loader;
  section.add("sources", sources_text(loader.sources));
  section.add("validation.sources", sources_text(data.validation_sources));
  section.add("order.samples", sample_words.at(static_cast<std::size_t>(loader.samples)));
  section.add("order.shuffle", shuffle_words.at(static_cast<std::size_t>(loader.shuffle)));
  section.add("order.chunk", loader.chunk);
  section.add("order.mixed_chunks", loader.mixed_chunks);
  section.add("reading.memory_bytes", loader.memory_bytes);
  section.add("reading.reader", loader.reader);
  section.add("reading.io_threads", loader.io_threads);
  section.add("reading.decode_threads", loader.decode_threads);
  section.add("reading.corrupt", loader.corrupt == Corrupt::stop ? "stop" : "skip");
  section.add("reading.timeout_ms", loader.timeout.count());
  section.add("reading.fsx", quoted(loader.fsx));
  section.add("cache.folder", loader.cache.folder.empty() ? "not given" : "given");
  section.add("cache.bytes", loader.cache.bytes);
}

void add_precision(Settings& settings, const FsdpOptions& sharding) {
  Section section(settings, "train.precision");
  section.add("parameters", name(sharding.parameter_dtype));
  section.add("parameter_wire", name(sharding.parameter_wire.value_or(sharding.parameter_dtype)));
  section.add("gradient_wire", name(sharding.gradient_wire));
  section.add("error_feedback", sharding.error_feedback);
  section.add("stochastic_rounding", sharding.stochastic_rounding);
  section.add("loss_scale", sharding.loss_scale.dynamic ? "dynamic" : "static");
  section.add("loss_scale.initial", sharding.loss_scale.initial);
  section.add("loss_scale.least", sharding.loss_scale.least);
  section.add("loss_scale.window", sharding.loss_scale.window);
  section.add("loss_scale.hysteresis", sharding.loss_scale.hysteresis);
}

void add_train(Settings& settings, const OptimizationConfig& train, const FsdpOptions& sharding) {
  Section section(settings, "train");
  section.add("steps", train.steps);
  section.add("batch", train.batch);
  section.add("micro_steps", sharding.micro_steps);
  section.add("accumulate", sharding.accumulate == Accumulate::two_hop ? "two_hop" : "local");
  section.add("learning_rate", train.learning_rate);
  section.add("base_batch", train.base_batch);
  section.add("final_learning_rate", train.final_learning_rate);
  section.add("schedule", train.schedule);
  section.add("warmup_steps", train.warmup_steps);
  section.add("optimizer", sharding.optimizer.name);
  for (const auto& [key, value] : sharding.optimizer.values) {
    section.add("optimizer." + key, value);
  }
  section.add("clip_norm", sharding.clip_norm);
  section.add("gemm", train.gemm);
  section.add("seed", sharding.seed);
  section.add("validate_every", train.validate_every);
  section.add("validation_samples", train.validation_samples);
  section.add("sample_bytes", train.sample_bytes);
  section.add("temperature", train.temperature);
  section.add("prompt", quoted(train.prompt));
  section.add("max_skipped_steps", train.max_skipped_steps);
  section.add("stop_grace_s", train.stop_grace_s);
}

void add_parallel(Settings& settings, const FsdpOptions& sharding) {
  Section section(settings, "parallel");
  section.add("strategy", quoted(sharding.strategy));
  section.add("hybrid_shard_degree", sharding.hybrid_shard_degree);
  section.add("prefetch_units", sharding.prefetch_units);
  section.add("max_live_elements", sharding.max_live_elements);
  section.add("reductions_in_flight", sharding.reductions_in_flight);
  section.add("reduce_bucket_elements", sharding.reduce_bucket_elements);
  section.add("persistence_threshold", sharding.persistence_threshold);
  section.add("gradient_order", name(sharding.gradient_order));
  section.add("state_tier", kind_of(sharding.state_tier));
  section.add("shard_tier", kind_of(sharding.shard_tier));
}

void add_pipeline(Settings& settings, const PipelineConfig& pipeline) {
  Section section(settings, "parallel");
  section.add("tensor_parallel_degree", pipeline.tensor_degree);
  section.add("optimize", optimize_text(pipeline.optimize));
  section.add("prescaled_batch", pipeline.prescaled_batch);
  section.add("context_parallel_degree", pipeline.context_degree);
  section.add("cp_comm_type", pipeline.cp_comm_type);
  section.add("pipeline_parallel_degree", pipeline.degree);
  section.add("pipeline", pipeline.schedule);
  section.add("stages_per_rank", pipeline.stages_per_rank);
  section.add("active_microbatches", pipeline.active_microbatches);
  section.add("placement_strategy", pipeline.placement);
  const PartitionConfig& partition = pipeline.partition;
  section.add("auto_partition", partition.first_layers.empty() && !partition.by_hand);
  section.add("partition", fmt::format("{} {}", Json(partition.first_layers).dump(),
                                       Json(partition.pins).dump()));
  section.add("default_partition", partition.default_stage);
  section.add("partition_file",
              partition.file.empty()
                  ? "not given"
                  : fmt::format("{} bytes with checksum {:016x}", partition.file_text.size(),
                                fnv1a(partition.file_text)));
  const ActivationConfig& activations = pipeline.activations;
  section.add("activation_checkpointing", recomputation_text(activations));
  section.add("offload_activations", activations.offload);
  section.add("activation_loading_horizon", activations.horizon);
  section.add("activation_horizon_unit",
              activations.unit == HorizonUnit::tasks ? "tasks" : "tensors");
  section.add("activation_horizon_limit", activations.horizon_limit);
  section.add("activation_keep_last", activations.keep_last);
  section.add("activation_tier", kind_of(activations.tier));
}

const char* given_or_not(bool given) { return given ? "given" : "not given"; }

}  // namespace

Settings settings_of(const TrainConfig& config) {
  Settings settings;
  Section model(settings, "model");
  model.add("layers", config.model.layers);
  model.add("width", config.model.width);
  model.add("heads", config.model.heads);
  model.add("context", config.model.context);
  model.add("vocabulary", config.model.vocabulary);
  add_data(settings, config.data);
  add_train(settings, config.train, config.sharding);
  add_precision(settings, config.sharding);
  add_parallel(settings, config.sharding);
  add_pipeline(settings, config.pipeline);
  Section checkpoint(settings, "checkpoint");
  checkpoint.add("folder", given_or_not(!config.checkpoint.folder.empty()));
  checkpoint.add("every", config.checkpoint.every);
  checkpoint.add("keep", config.checkpoint.keep);
  checkpoint.add("asynchronous", config.checkpoint.asynchronous);
  return settings;
}

Settings text_settings(const TokenizedText& text) {
  return {{"data.files",
           fmt::format("{} bytes with checksum {:016x}", text.text_bytes(), text.checksum())},
          {"data.tokenizer", text.codec().is_bytes() ? "not given" : text.codec().description()}};
}

Settings request_settings(const TrainRequest& request) {
  const std::string resume = !request.resume           ? "not given"
                             : request.resume->empty() ? "given without a path"
                                                       : "given with a path";
  return {{"--steps", request.steps ? fmt::format("{}", *request.steps) : "not given"},
          {"--resume", resume},
          {"--start", given_or_not(request.start.has_value())}};
}

void agree_on_settings(Communicator& world, const std::function<Settings()>& read) {
  const Statement mine = statement_of(read);
  const std::string text = packed(mine);
  const std::vector<Summary> all = summaries(
      world, {.digest = fnv1a(text), .bytes = text.size(), .failed = mine.error ? 1u : 0u});
  const bool failed = std::ranges::any_of(all, [](const Summary& one) { return one.failed != 0; });
  const bool differ =
      std::ranges::any_of(all, [&](const Summary& one) { return one.digest != all[0].digest; });
  if (!failed && !differ) {
    return;
  }
  const std::vector<Statement> of_all = statements(world, text, all);
  if (failed) {
    refuse_failures(of_all);
  }
  refuse_differences(of_all);
}

}  // namespace sprat::train
