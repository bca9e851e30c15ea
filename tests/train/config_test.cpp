// The configuration: what is read, what is refused, and in which words.
#include "train/config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "sprat/error.hpp"
#include "train/json_section.hpp"

namespace sprat::train {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& json) {
  try {
    parse_train_config(json, "test.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "accepted";
}

TEST(TrainConfig, needs_only_files) {
  const TrainConfig config = parse_train_config(R"({"data": {"files": ["a.txt"]}})", "test.json");
  EXPECT_EQ(config.data.files, std::vector<std::string>{"a.txt"});
  EXPECT_EQ(config.model.layers, GptShape{}.layers);
  EXPECT_EQ(config.parallel.hybrid_shard_degree, 1);
}

TEST(TrainConfig, reads_every_section) {
  const TrainConfig config = parse_train_config(R"({
    // comments are fine
    "model": {"layers": 3, "width": 48, "heads": 3, "context": 32},
    "data": {"files": ["a", "b"], "validation_share": 0.1},
    "train": {"steps": 70, "batch": 8, "learning_rate": 0.002, "final_learning_rate": 0.0001,
              "warmup_steps": 7, "weight_decay": 0.2, "beta1": 0.8, "beta2": 0.9, "clip_norm": 2,
              "seed": 5, "validate_every": 10, "validation_samples": 9, "sample_bytes": 100,
              "temperature": 0.5, "prompt": "The"},
    "parallel": {"hybrid_shard_degree": 2, "prefetch_units": 3}
  })",
                                                "test.json");
  EXPECT_EQ(config.model.layers, 3);
  EXPECT_EQ(config.model.width, 48);
  EXPECT_EQ(config.model.heads, 3);
  EXPECT_EQ(config.model.context, 32);
  EXPECT_EQ(config.data.files.size(), 2u);
  EXPECT_EQ(config.data.validation_share, 0.1);
  EXPECT_EQ(config.train.steps, 70);
  EXPECT_EQ(config.train.batch, 8);
  EXPECT_EQ(config.train.learning_rate, 0.002);
  EXPECT_EQ(config.train.final_learning_rate, 0.0001);
  EXPECT_EQ(config.train.warmup_steps, 7);
  EXPECT_EQ(config.train.weight_decay, 0.2);
  EXPECT_EQ(config.train.beta1, 0.8);
  EXPECT_EQ(config.train.beta2, 0.9);
  EXPECT_EQ(config.train.clip_norm, 2.0);
  EXPECT_EQ(config.train.seed, 5u);
  EXPECT_EQ(config.train.validate_every, 10);
  EXPECT_EQ(config.train.validation_samples, 9);
  EXPECT_EQ(config.train.sample_bytes, 100);
  EXPECT_EQ(config.train.temperature, 0.5);
  EXPECT_EQ(config.train.prompt, "The");
  EXPECT_EQ(config.parallel.hybrid_shard_degree, 2);
  EXPECT_EQ(config.parallel.prefetch_units, 3);
}

TEST(TrainConfig, refuses_in_one_line_that_names_the_key) {
  const struct {
    const char* json;
    const char* said;
  } cases[] = {
      {R"({"modle": {}})", "unknown key \"modle\" in the configuration (did you mean \"model\"?)"},
      {R"({"model": {"layer": 2}})",
       "unknown key \"layer\" in section \"model\" (did you mean \"layers\"?); known: layers, "
       "width"},
      {R"({"train": {"qqqqqqqq": 2}, "data": {"files": ["a"]}})",
       "unknown key \"qqqqqqqq\" in section \"train\"; known: steps"},
      {R"({"model": 3})", "\"model\" is 3; it is a section"},
      {R"({"model": {"layers": "two"}})", "model.layers is \"two\"; it is a whole number"},
      {R"({"model": {"layers": 2.5}})", "model.layers is 2.5; it is a whole number"},
      {R"({"model": {"layers": 5000000000}})", "model.layers is 5000000000; it is a whole number"},
      {R"({"model": {"layers": 0}})", "model.layers is 0; it is at least 1"},
      {R"({"model": {"width": 100, "heads": 3}})",
       "model.width 100 is not a multiple of model.heads 3"},
      {R"({"model": {"width": 64, "width": 128}})", "key \"width\" is given twice"},
      {R"({"model": {}})", "data.files is missing or empty"},
      {R"({"data": {"files": "a"}})", "data.files is \"a\"; it is a list of strings"},
      {R"({"data": {"files": ["a"], "validation_share": 1}})", "data.validation_share is 1"},
      {R"({"data": {"files": ["a"]}, "train": {"steps": 10, "warmup_steps": 10}})",
       "train.warmup_steps is 10, train.steps is 10"},
      {R"({"data": {"files": ["a"]}, "train": {"learning_rate": 0.1, "final_learning_rate": 0.2}})",
       "train.final_learning_rate is 0.2"},
      {R"({"data": {"files": ["a"]}, "train": {"seed": -1}})",
       "train.seed is -1; it is a whole number, 0 or more"},
      {R"({"data": {"files": ["a"]}, "train": {"temperature": 0}})", "train.temperature is 0"},
      {R"({"data": {"files": ["a"]}, "train": {"prompt": ""}})", "train.prompt is empty"},
      {R"({"data": {"files": ["a"]}, "parallel": {"hybrid_shard_degree": 0}})",
       "parallel.hybrid_shard_degree is 0; it is at least 1"},
      {R"([1, 2])", "no object of sections"},
      {R"({"model": )", "parse error"},
  };
  for (const auto& [json, said] : cases) {
    const std::string message = refusal(json);
    EXPECT_THAT(message, HasSubstr(said)) << json;
    EXPECT_EQ(message.find("test.json: "), 0u) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(TrainConfig, ranks_that_do_not_fit_are_refused_with_a_remedy) {
  TrainConfig config = parse_train_config(
      R"({"data": {"files": ["a"]}, "train": {"batch": 30}, "parallel": {"hybrid_shard_degree": 2}})",
      "test.json");
  const auto message = [&](int ranks) -> std::string {
    try {
      check_ranks(config, ranks);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message(2), "accepted");
  EXPECT_EQ(message(6), "accepted");
  EXPECT_THAT(
      message(4),
      HasSubstr(
          "train.batch 30 does not divide among 4 ranks; make it a multiple of 4, such as 32"));
  EXPECT_THAT(message(3), HasSubstr("parallel.hybrid_shard_degree 2 does not divide the 3 ranks"));
}

TEST(TrainConfig, files_are_relative_to_the_configuration) {
  const auto folder = std::filesystem::temp_directory_path();
  const auto path = folder / ("sprat-config-" + std::to_string(getpid()) + ".json");
  std::ofstream(path) << R"({"data": {"files": ["a.txt", "/b.txt"]}})";
  const TrainConfig config = read_train_config(path.string());
  std::filesystem::remove(path);
  EXPECT_EQ(config.data.files, (std::vector<std::string>{(folder / "a.txt").string(), "/b.txt"}));
}

TEST(TrainConfig, a_missing_file_is_named) {
  try {
    read_train_config("/nowhere/at/all.json");
    FAIL() << "read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_THAT(error.what(), HasSubstr("/nowhere/at/all.json"));
  }
}

TEST(Nearest, is_the_word_with_fewest_edits_if_any_is_near) {
  const std::vector<std::string> known = {"steps", "batch", "seed"};
  EXPECT_EQ(nearest("step", known), "steps");
  EXPECT_EQ(nearest("bacth", known), "batch");
  EXPECT_EQ(nearest("learning_rate_decay", known), "");
}

TEST(LearningRate, warms_up_to_the_peak_and_ends_at_the_final_rate) {
  OptimizationConfig config;
  config.steps = 100;
  config.warmup_steps = 10;
  config.learning_rate = 1.0;
  config.final_learning_rate = 0.1;
  EXPECT_DOUBLE_EQ(learning_rate(config, 0), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(config, 9), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 10), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 55), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(config, 100), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(config, 5000), 0.1);
  for (int step = 11; step < 100; ++step) {
    EXPECT_LT(learning_rate(config, step), learning_rate(config, step - 1)) << step;
  }
}

}  // namespace
}  // namespace sprat::train
