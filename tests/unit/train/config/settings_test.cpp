// What ranks must have alike: every key of the configuration, the text, the command line.
#include "train/config/settings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "sprat/error.hpp"
#include "tests/unit/io/temporary_folder.hpp"
#include "tests/unit/io/tokenizer/small_tokenizer.hpp"
#include "tests/unit/train/small_text.hpp"

namespace sprat::train {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;

Json base() {
  return Json::parse(R"({
    "model": {"layers": 1, "width": 16, "heads": 2, "context": 16},
    "data": {"files": ["text.txt"]},
    "train": {"steps": 20, "batch": 8, "warmup_steps": 0, "sample_bytes": 0,
              "precision": {"parameters": "f16", "gradient_wire": "i8"}},
    "parallel": {"hybrid_shard_degree": 2, "offload_activations": true},
    "checkpoint": {"folder": "saved"}})");
}

/// Another value than base() has, for every key that the configuration knows.
const std::map<std::string, Json>& others() {
  static const std::map<std::string, Json> values = {
      {"/model/layers", 2},
      {"/model/width", 32},
      {"/model/heads", 4},
      {"/model/context", 8},
      {"/model/vocabulary", 300},
      {"/data/files", Json::array({"other.txt"})},
      {"/data/tokenizer", "tokenizer.json"},
      {"/data/validation_share", 0.1},
      {"/train/steps", 21},
      {"/train/batch", 16},
      {"/train/micro_steps", 2},
      {"/train/accumulate", "local"},
      {"/train/learning_rate", 0.002},
      {"/train/base_batch", 4},
      {"/train/final_learning_rate", 0.0002},
      {"/train/warmup_steps", 1},
      {"/train/schedule", "linear"},
      {"/train/optimizer", {{"name", "lion"}}},
      {"/train/clip_norm", 2},
      {"/train/gemm", "reference"},
      {"/train/precision", {{"parameters", "bf16"}}},
      {"/train/precision/parameters", "f32"},
      {"/train/precision/parameter_wire", "f8e4m3"},
      {"/train/precision/gradient_wire", "bf16"},
      {"/train/precision/error_feedback", true},
      {"/train/precision/stochastic_rounding", true},
      {"/train/precision/loss_scale", 8},
      {"/train/precision/loss_scale/initial", 1024},
      {"/train/precision/loss_scale/least", 2},
      {"/train/precision/loss_scale/window", 7},
      {"/train/precision/loss_scale/hysteresis", 3},
      {"/train/seed", 7},
      {"/train/validate_every", 5},
      {"/train/validation_samples", 5},
      {"/train/sample_bytes", 10},
      {"/train/temperature", 0.5},
      {"/train/prompt", "The"},
      {"/train/max_skipped_steps", 3},
      {"/train/stop_grace_s", 3},
      {"/parallel/strategy", "ddp"},
      {"/parallel/hybrid_shard_degree", 1},
      {"/parallel/sharded_data_parallel_degree", 2},
      {"/parallel/prefetch_units", 2},
      {"/parallel/reductions_in_flight", 2},
      {"/parallel/max_live_elements", 1e6},
      {"/parallel/sdp_max_live_parameters", 1e6},
      {"/parallel/reduce_bucket_elements", 1e6},
      {"/parallel/sdp_reduce_bucket_size", 1e6},
      {"/parallel/persistence_threshold", 100},
      {"/parallel/sdp_param_persistence_threshold", 100},
      {"/parallel/sdp_gradient_clipping", 0.5},
      {"/parallel/gradient_order", "tree"},
      {"/parallel/state_tier", "file:states"},
      {"/parallel/shard_tier", "file:shards"},
      {"/parallel/pipeline_parallel_degree", 2},
      {"/parallel/partitions", 2},
      {"/parallel/microbatches", 2},
      {"/parallel/active_microbatches", 1},
      {"/parallel/pipeline", "gpipe"},
      {"/parallel/stages_per_rank", 2},
      {"/parallel/placement_strategy", "spread"},
      {"/parallel/auto_partition", false},
      {"/parallel/tensor_parallel_degree", 2},
      {"/parallel/optimize", "speed"},
      {"/parallel/prescaled_batch", false},
      {"/parallel/context_parallel_degree", 2},
      {"/parallel/cp_comm_type", "all_gather"},
      {"/parallel/partition", {{"h.0", 0}}},
      {"/parallel/default_partition", 1},
      {"/parallel/partition_file", "cut.json"},
      {"/parallel/activation_checkpointing", "each"},
      {"/parallel/offload_activations", false},
      {"/parallel/activation_loading_horizon", 3},
      {"/parallel/activation_horizon_unit", "tasks"},
      {"/parallel/activation_horizon_limit", 5},
      {"/parallel/activation_keep_last", 2},
      {"/parallel/activation_tier", "file:tapes"},
      {"/checkpoint/folder", ""},
      {"/checkpoint/every", 3},
      {"/checkpoint/keep", 3},
      {"/checkpoint/asynchronous", false}};
  return values;
}

/// Those that have no effect, say what another key says, or take one value alone.
bool says_nothing(const std::string& key) {
  return key == "/parallel/sdp_hierarchical_allgather" || key == "/parallel/load_partition" ||
         key == "/parallel/expert_parallel_degree";
}

/// Keys of the section at `path` that the refusal of a configuration with an unknown one lists.
std::vector<std::string> keys_in_refusal(const Json& config, const std::string& path) {
  try {
    parse_train_config(config.dump(), "test.json");
  } catch (const Error& error) {
    const std::string message = error.what();
    static const std::regex word("[a-z_]+");
    const std::string list = message.substr(message.find("known: ") + 7);
    std::vector<std::string> keys;
    for (std::sregex_iterator at(list.begin(), list.end(), word), end; at != end; ++at) {
      keys.push_back(path + "/" + at->str());
    }
    return keys;
  }
  return {};
}

std::vector<std::string> known_keys(const std::string& path) {
  Json config = base();
  config[Json::json_pointer(path)] = {{"no such key", 1}};
  if (path != "/data") {
    config["data"] = {{"files", {"text.txt"}}};
  }
  return keys_in_refusal(config, path);
}

/// base() with another value of one key.
Json changed(const std::string& key) {
  Json config = base();
  config[Json::json_pointer(key)] = others().at(key);
  return config;
}

Settings settings(const Json& config) {
  return settings_of(parse_train_config(config.dump(), "test.json"));
}

TEST(Settings, hold_every_key_that_the_configuration_knows) {
  int keys = 0;
  for (const std::string section : {"/model", "/data", "/train", "/train/precision",
                                    "/train/precision/loss_scale", "/parallel", "/checkpoint"}) {
    for (const std::string& key : known_keys(section)) {
      const bool of_sources = key == "/data/sources" || key == "/data/validation" ||
                              key == "/data/order" || key == "/data/reading" ||
                              key == "/data/cache";
      if (key == "/data/files" || key == "/data/tokenizer" || of_sources || says_nothing(key)) {
        continue;  // of files what they hold is compared
      }
      ++keys;
      ASSERT_TRUE(others().contains(key)) << "a new key: give another value of " << key << " here";
      EXPECT_NE(settings(changed(key)), settings(base())) << key;
    }
  }
  EXPECT_GT(keys, 40);
}

Json sources_base() {
  Json config = base();
  config["model"]["vocabulary"] = 300;
  config["data"] = Json::parse(R"({"sources": [{"paths": ["a.bin"]}],
                                   "validation": {"sources": [{"paths": ["b.bin"]}]}})");
  return config;
}

/// Another value than sources_base() has, for every key of the section that sources have.
const std::map<std::string, Json>& others_of_sources() {
  static const std::map<std::string, Json> values = {
      {"/data/sources/0/format", "megatron"},
      {"/data/sources/0/token_type", "u16"},
      {"/data/sources/0/weight", 2},
      {"/data/sources/0/separator", 2},
      {"/data/validation/sources/0/token_type", "u16"},
      {"/data/order/samples", "packed"},
      {"/data/order/shuffle", "chunks"},
      {"/data/order/chunk", 7},
      {"/data/order/mixed_chunks", 7},
      {"/data/reading/memory_bytes", 100000000},
      {"/data/reading/reader", "pool"},
      {"/data/reading/io_threads", 3},
      {"/data/reading/decode_threads", 3},
      {"/data/reading/corrupt", "skip"},
      {"/data/reading/timeout_ms", 1000},
      {"/data/reading/fsx", "SCRATCH_2:200:1200"},
      {"/data/cache/folder", "cache"},
      {"/data/cache/bytes", 1000000}};
  return values;
}

std::vector<std::string> known_keys_of_sources(const std::string& path) {
  Json config = sources_base();
  config[Json::json_pointer(path + "/nosuchkey")] = 1;
  return keys_in_refusal(config, path);
}

TEST(Settings, hold_every_key_of_sources) {
  int keys = 0;
  for (const std::string section :
       {"/data/sources/0", "/data/order", "/data/reading", "/data/cache"}) {
    for (const std::string& key : known_keys_of_sources(section)) {
      const bool derived = key == "/data/order/seed" || key == "/data/order/length" ||
                           key == "/data/order/epochs" || key == "/data/order/remainder";
      if (key == "/data/sources/0/paths" || derived) {
        continue;  // of files what they hold is compared; the others are the run's own
      }
      ++keys;
      ASSERT_TRUE(others_of_sources().contains(key)) << "a new key: give another value of " << key;
    }
  }
  EXPECT_GE(keys, 16);
  for (const auto& [key, value] : others_of_sources()) {
    Json config = sources_base();
    config[Json::json_pointer(key)] = value;
    EXPECT_NE(settings(config), settings(sources_base())) << key;
  }
}

TEST(Settings, hold_an_optimizers_numbers) {
  Json config = base();
  config["train"]["optimizer"] = {{"name", "adamw"}, {"weight_decay", 0.2}};
  EXPECT_EQ(settings(config).at("train.optimizer.weight_decay"), "0.2");
}

TEST(Settings, leave_out_what_hosts_may_call_by_names_of_their_own) {
  Json one = base(), other = base();
  one["parallel"]["state_tier"] = "file:/scratch/a";
  other["parallel"]["state_tier"] = "file:/local/b";
  one["checkpoint"]["folder"] = "/mnt/shared/saved";
  other["checkpoint"]["folder"] = "/net/shared/saved";
  EXPECT_EQ(settings(one), settings(other));
}

class Ranks : public testing::Test {
 protected:
  Ranks() {
    write_small_text(folder_ / "text.txt");
    write_small_text(folder_ / "other.txt", "of a text that is an other one");
    std::ofstream(folder_ / "cut.json") << "{}";
    write_tokenizer("tokenizer.json", {{"l", "i"}});
  }

  void write_tokenizer(const std::string& name, const io::SpeltMerges& merges) const {
    std::ofstream(folder_ / name) << io::small_tokenizer(merges);
  }
  std::string write(const std::string& name, const Json& config) const {
    std::ofstream(folder_ / name) << config.dump();
    return folder_ / name;
  }

  /// What each of four ranks says that are to train by `mine`, but rank 3 by `last`.
  std::vector<std::string> refusals(const TrainRequest& mine, const TrainRequest& last) const {
    std::vector<std::string> said(4, "trained");
    testing::internal::CaptureStdout();
    run_virtual_ranks(4, Config{}, [&](Communicator& world) {
      try {
        run(world, world.rank() == 3 ? last : mine);
      } catch (const Error& error) {
        said[static_cast<std::size_t>(world.rank())] = error.what();
        EXPECT_EQ(error.code(), expected_);
      }
    });
    testing::internal::GetCapturedStdout();
    return said;
  }
  std::vector<std::string> refusals(const Json& last) const {
    return refusals({.config = write("a.json", base())}, {.config = write("b.json", last)});
  }

  const TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
  ErrorCode expected_ = ErrorCode::mismatch;
};

TEST_F(Ranks, with_another_value_of_any_key_are_refused_on_every_rank) {
  for (const auto& [key, value] : others()) {
    for (const std::string& said : refusals(changed(key))) {
      EXPECT_THAT(said, HasSubstr("the ranks are to train with different settings: ")) << key;
      EXPECT_THAT(said, HasSubstr(" on ranks 0-2, ")) << key;
      EXPECT_THAT(said, HasSubstr(" on rank 3")) << key;
    }
  }
}

TEST_F(Ranks, are_told_keys_values_and_who_has_them) {
  Json last = changed("/train/learning_rate");
  last["model"]["heads"] = 4;
  for (const std::string& said : refusals(last)) {
    EXPECT_THAT(said, HasSubstr("model.heads is 2 on ranks 0-2, 4 on rank 3; "));
    EXPECT_THAT(said, HasSubstr("train.learning_rate is 0.001 on ranks 0-2, 0.002 on rank 3"));
    EXPECT_THAT(said, Not(HasSubstr("train.seed")));
  }
}

TEST_F(Ranks, that_read_another_text_under_the_same_name_are_refused) {
  std::filesystem::create_directory(folder_ / "elsewhere");
  write_small_text(folder_ / "elsewhere" / "text.txt", "of a text that repeats itselF");  // as long
  for (const std::string& said : refusals({.config = write("a.json", base())},
                                          {.config = write("elsewhere/a.json", base())})) {
    EXPECT_THAT(said, HasSubstr("data.files is "));
    EXPECT_THAT(said, HasSubstr("with checksum"));
  }
}

TEST_F(Ranks, that_read_another_tokenizer_under_the_same_name_are_refused) {
  const Json config = changed("/data/tokenizer");
  std::filesystem::create_directory(folder_ / "elsewhere");
  write_small_text(folder_ / "elsewhere" / "text.txt");
  write_tokenizer("elsewhere/tokenizer.json", {{"n", "e"}});  // as many tokens
  for (const std::string& said : refusals({.config = write("a.json", config)},
                                          {.config = write("elsewhere/a.json", config)})) {
    EXPECT_THAT(said, HasSubstr("data.tokenizer is 258 tokens with checksum"));
    EXPECT_THAT(said, Not(HasSubstr("data.files")));
  }
}

TEST_F(Ranks, with_other_options_are_refused) {
  const std::string config = write("a.json", base());
  EXPECT_THAT(refusals({.config = config, .steps = 2}, {.config = config, .steps = 3})[0],
              HasSubstr("--steps is 2 on ranks 0-2, 3 on rank 3"));
  EXPECT_THAT(refusals({.config = config}, {.config = config, .resume = ""})[0],
              HasSubstr("--resume is not given on ranks 0-2, given without a path on rank 3"));
  EXPECT_THAT(refusals({.config = config}, {.config = config, .start = "x"})[0],
              HasSubstr("--start is not given on ranks 0-2, given on rank 3"));
}

TEST_F(Ranks, without_a_configuration_or_a_text_are_named_on_every_rank) {
  expected_ = ErrorCode::unavailable;
  const std::string config = write("a.json", base());
  for (const std::string& said : refusals({.config = config}, {.config = folder_ / "none.json"})) {
    EXPECT_THAT(said, HasSubstr("rank 3: cannot open configuration"));
  }
  Json without = base();
  without["data"]["files"] = {"none.txt"};
  for (const std::string& said : refusals(without)) {
    EXPECT_THAT(said, HasSubstr("rank 3: cannot open text file"));
  }
}

}  // namespace
}  // namespace sprat::train
