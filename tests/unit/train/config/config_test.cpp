// The configuration: what is read, what is refused, and in which words.
#include "train/config/config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "comm/base/json_section.hpp"
#include "sprat/error.hpp"
#include "tests/unit/comm/base/refused.hpp"

namespace sprat::train {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

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
  EXPECT_EQ(config.sharding.hybrid_shard_degree, 0);
  EXPECT_EQ(config.sharding.optimizer.name, "adamw");
  EXPECT_EQ(config.sharding.parameter_dtype, DType::f32);
  EXPECT_EQ(config.checkpoint.folder, "");
}

TEST(TrainConfig, reads_every_section) {
  const TrainConfig config = parse_train_config(R"({
    // comments are fine
    "model": {"layers": 3, "width": 48, "heads": 3, "context": 32, "vocabulary": 700},
    "data": {"files": ["a", "b"], "tokenizer": "t.json", "validation_share": 0.1},
    "train": {"steps": 70, "batch": 8, "learning_rate": 0.002, "final_learning_rate": 0.0001,
              "warmup_steps": 7, "base_batch": 4, "schedule": "linear", "micro_steps": 2, "accumulate": "local",
              "optimizer": {"name": "sgd", "momentum": 0.8, "nesterov": 1}, "clip_norm": 2,
              "gemm": "reference",
              "precision": {"parameters": "bf16", "gradient_wire": "f16", "stochastic_rounding": true,
                            "loss_scale": {"initial": 1024, "least": 4, "window": 50, "hysteresis": 3}},
              "seed": 5, "validate_every": 10, "validation_samples": 9, "sample_bytes": 100,
              "temperature": 0.5, "prompt": "The", "stop_grace_s": 3},
    "parallel": {"strategy": "hfsdp", "hybrid_shard_degree": 2, "prefetch_units": 3,
                 "max_live_elements": 1e6, "reductions_in_flight": 2, "reduce_bucket_elements": 2e5,
                 "persistence_threshold": 100, "gradient_order": "tree", "state_tier": "file:states",
                 "shard_tier": "file:shards"},
    "checkpoint": {"folder": "saved", "every": 20, "keep": 3, "asynchronous": false}
  })",
                                                "test.json");
  EXPECT_EQ(config.model.layers, 3);
  EXPECT_EQ(config.model.width, 48);
  EXPECT_EQ(config.model.heads, 3);
  EXPECT_EQ(config.model.context, 32);
  EXPECT_EQ(config.model.vocabulary, 700);
  EXPECT_EQ(config.data.files.size(), 2u);
  EXPECT_EQ(config.data.tokenizer, "t.json");
  EXPECT_EQ(config.data.validation_share, 0.1);
  EXPECT_EQ(config.train.steps, 70);
  EXPECT_EQ(config.train.batch, 8);
  EXPECT_EQ(config.train.learning_rate, 0.002);
  EXPECT_EQ(config.train.final_learning_rate, 0.0001);
  EXPECT_EQ(config.train.warmup_steps, 7);
  EXPECT_EQ(config.train.schedule, "linear");
  EXPECT_EQ(config.train.base_batch, 4);
  EXPECT_EQ(config.train.gemm, "reference");
  EXPECT_EQ(config.sharding.micro_steps, 2);
  EXPECT_EQ(config.sharding.accumulate, Accumulate::local);
  EXPECT_EQ(config.sharding.optimizer.name, "sgd");
  EXPECT_EQ(config.sharding.optimizer.values,
            (std::map<std::string, double>{{"momentum", 0.8}, {"nesterov", 1}}));
  EXPECT_EQ(config.sharding.parameter_dtype, DType::bf16);
  EXPECT_EQ(config.sharding.gradient_wire, DType::f16);
  EXPECT_TRUE(config.sharding.stochastic_rounding);
  EXPECT_TRUE(config.sharding.loss_scale.dynamic);
  EXPECT_EQ(config.sharding.loss_scale.initial, 1024);
  EXPECT_EQ(config.sharding.loss_scale.least, 4);
  EXPECT_EQ(config.sharding.loss_scale.window, 50);
  EXPECT_EQ(config.sharding.loss_scale.hysteresis, 3);
  EXPECT_EQ(config.train.stop_grace_s, 3);
  EXPECT_EQ(config.sharding.clip_norm, 2.0);
  EXPECT_EQ(config.sharding.seed, 5u);
  EXPECT_EQ(config.train.validate_every, 10);
  EXPECT_EQ(config.train.validation_samples, 9);
  EXPECT_EQ(config.train.sample_bytes, 100);
  EXPECT_EQ(config.train.temperature, 0.5);
  EXPECT_EQ(config.train.prompt, "The");
  EXPECT_EQ(config.sharding.hybrid_shard_degree, 2);
  EXPECT_EQ(config.sharding.prefetch_units, 3);
  EXPECT_EQ(config.sharding.strategy, "hfsdp");
  EXPECT_EQ(config.sharding.max_live_elements, 1'000'000u);
  EXPECT_EQ(config.sharding.reductions_in_flight, 2);
  EXPECT_EQ(config.sharding.reduce_bucket_elements, 200'000u);
  EXPECT_EQ(config.sharding.persistence_threshold, 100u);
  EXPECT_EQ(config.sharding.gradient_order, GradientOrder::tree);
  EXPECT_EQ(config.sharding.state_tier, "file:states");
  EXPECT_EQ(config.sharding.shard_tier, "file:shards");
  EXPECT_EQ(config.checkpoint.folder, "saved");
  EXPECT_EQ(config.checkpoint.every, 20);
  EXPECT_EQ(config.checkpoint.keep, 3);
  EXPECT_FALSE(config.checkpoint.asynchronous);
}

TrainConfig parsed(const std::string& sections) {
  return parse_train_config(R"({"data": {"files": ["a"]}, )" + sections + "}", "test.json");
}

TEST(TrainConfig, lets_the_model_know_all_tokens_or_more) {
  const auto fitted = [](const std::string& model, int tokens) {
    TrainConfig config = parse_train_config(
        R"({"data": {"files": ["a"], "tokenizer": "t"}, "model": {)" + model + "}}", "test.json");
    fit_vocabulary(config, tokens);
    return config.model.vocabulary;
  };
  EXPECT_EQ(parsed(R"("model": {})").model.vocabulary, 256);
  EXPECT_EQ(parsed(R"("model": {"vocabulary": 300})").model.vocabulary, 300);
  EXPECT_EQ(fitted("", 5000), 5000);
  EXPECT_EQ(fitted(R"("vocabulary": 5000)", 5000), 5000);
  EXPECT_EQ(fitted(R"("vocabulary": 5056)", 5000), 5056);
  EXPECT_EQ(message_of([&] { fitted(R"("vocabulary": 4999)", 5000); }),
            "model.vocabulary is 4999, and data.tokenizer t has 5000 tokens; leave it out, or give "
            "5000 or more");
}

TEST(TrainConfig, says_what_a_number_may_be) {
  const auto model = [](const std::string& keys) {
    return refusal(R"({"data": {"files": ["a"]}, "model": {)" + keys + "}}");
  };
  EXPECT_THAT(model(R"("width": 2147483648)"),
              HasSubstr("2147483648; it is a whole number from -2147483648 to 2147483647"));
  EXPECT_THAT(model(R"("layers": 1000000000)"),
              HasSubstr("model.layers is 1000000000; it is at most 65536"));
  EXPECT_THAT(model(R"("width": 2000000, "heads": 1)"), HasSubstr("it is at most 1048576"));
  EXPECT_THAT(model(R"("context": 2000000)"), HasSubstr("it is at most 1048576"));
}

TEST(TrainConfig, says_what_is_wrong_with_broken_json_in_plain_words) {
  EXPECT_THAT(refusal("{\"model\": "), StartsWith("test.json: parse error at line 1, column 11"));
}

TEST(TrainConfig, is_read_from_files_alone) {
  std::string folder = (std::filesystem::temp_directory_path() / "sprat-config-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string pipe = folder + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, folder, std::string("/dev/zero")}) {
    try {
      read_train_config(path);
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), StartsWith("cannot read configuration " + path + ": "));
    }
  }
  std::filesystem::remove_all(folder);
}

TEST(TrainConfig, takes_smps_names) {
  const TrainConfig named = parsed(R"("parallel": {"sdp_max_live_parameters": 5e5,
      "sdp_reduce_bucket_size": 3e5, "sdp_param_persistence_threshold": 7,
      "sdp_hierarchical_allgather": false, "sdp_gradient_clipping": 0.5})");
  EXPECT_EQ(named.sharding.hybrid_shard_degree, 0);
  EXPECT_EQ(named.sharding.max_live_elements, 500'000u);
  EXPECT_EQ(named.sharding.reduce_bucket_elements, 300'000u);
  EXPECT_EQ(named.sharding.persistence_threshold, 7u);
  EXPECT_EQ(named.sharding.clip_norm, 0.5);
}

TEST(TrainConfig, takes_smps_defaults_with_the_degree_of_its_first_version) {
  const TrainConfig v1 = parsed(R"("parallel": {"sharded_data_parallel_degree": 4})");
  EXPECT_EQ(v1.sharding.hybrid_shard_degree, 4);
  EXPECT_EQ(v1.sharding.max_live_elements, 1'000'000'000u);
  EXPECT_EQ(v1.sharding.reduce_bucket_elements, 500'000'000u);
  EXPECT_EQ(v1.sharding.persistence_threshold, 1'000'000u);
  EXPECT_EQ(v1.sharding.clip_norm, 1.0);
  const TrainConfig v2 = parsed(R"("parallel": {"hybrid_shard_degree": 4})");
  EXPECT_EQ(v2.sharding.persistence_threshold, 0u);
  const TrainConfig both = parsed(R"("train": {"clip_norm": 3},
      "parallel": {"sharded_data_parallel_degree": 4, "persistence_threshold": 9})");
  EXPECT_EQ(both.sharding.persistence_threshold, 9u);
  EXPECT_EQ(both.sharding.clip_norm, 3.0);
}

TEST(TrainConfig, scales_losses_of_f16_unless_told) {
  const auto dynamic = [](const char* precision) {
    return parsed(std::string(R"("train": {"precision": )") + precision + "}")
        .sharding.loss_scale.dynamic;
  };
  EXPECT_FALSE(dynamic("{}"));
  EXPECT_FALSE(dynamic(R"({"gradient_wire": "bf16"})"));
  EXPECT_FALSE(dynamic(R"({"gradient_wire": "i8"})"));
  EXPECT_TRUE(dynamic(R"({"gradient_wire": "f16"})"));
  EXPECT_TRUE(dynamic(R"({"parameters": "f16"})"));
  EXPECT_TRUE(dynamic(R"({"loss_scale": "dynamic"})"));
  EXPECT_FALSE(dynamic(R"({"parameters": "f16", "loss_scale": 128})"));
}

TEST(TrainConfig, wires_may_have_blocks_with_a_scale) {
  const auto precision = [](const char* section) {
    return parsed(std::string(R"("train": {"precision": )") + section + "}").sharding;
  };
  const FsdpOptions plain = precision(R"({"parameters": "bf16", "parameter_wire": "bf16"})");
  EXPECT_FALSE(plain.parameter_wire.has_value());
  EXPECT_FALSE(plain.error_feedback);
  const FsdpOptions narrow =
      precision(R"({"parameter_wire": "f8e4m3", "gradient_wire": "i8", "error_feedback": true})");
  EXPECT_EQ(narrow.parameter_wire, DType::f8e4m3);
  EXPECT_EQ(narrow.gradient_wire, DType::i8);
  EXPECT_TRUE(narrow.error_feedback);
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
      {R"({"model": {"vocabulary": -1}})", "model.vocabulary is -1; it is at least 0"},
      {R"({"model": {"vocabulary": 20000000}})", "model.vocabulary is 20000000; it is at most"},
      {R"({"data": {"files": ["a"]}, "model": {"vocabulary": 255}})",
       "model.vocabulary is 255, and bytes are 256 tokens; leave it out, or give 256 or more"},
      {R"({"data": {"files": ["a"], "tokenizer": ["a"]}})", "data.tokenizer is [\"a\"]; it is"},
      {R"({"model": {"layers": 0}})", "model.layers is 0; it is at least 1"},
      {R"({"model": {"width": 100, "heads": 3}})",
       "model.width 100 is not a multiple of model.heads 3"},
      {R"({"model": {"width": 64, "width": 128}})", "key \"width\" is given twice"},
      {R"({"model": {}})", "data.files is missing or empty"},
      {R"({"data": {"files": ["a"], "sources": [{"paths": ["b"]}]}})",
       "data.files and data.sources are given"},
      {R"({"data": {"files": ["a"], "order": {}}})", "data.order is given without data.sources"},
      {R"({"data": {"sources": []}})", "data.sources is missing or empty"},
      {R"({"data": {"sources": [{"path": ["b"]}]}})",
       "unknown key \"path\" in section \"data.sources[0]\" (did you mean \"paths\"?)"},
      {R"({"data": {"sources": [{"paths": ["b"]}]}})", "data.validation.sources is missing"},
      {R"({"data": {"sources": [{"paths": ["b"]}], "validation": {"sources": [{}]}}})",
       "data.validation.sources[0].paths is missing"},
      {R"({"data": {"sources": [{"paths": ["b"]}], "validation": {"batch": 3}}})",
       "data.validation.sources is missing"},
      {R"({"data": {"sources": [{"paths": ["b"]}], "validation_share": 0.1}})",
       "data.validation_share is of data.files"},
      {R"({"data": {"sources": [{"paths": ["b"]}], "order": {"length": 3}}})",
       "data.order.length is model.context; leave it out"},
      {R"({"data": {"sources": [{"paths": ["b"]}], "order": {"samples": "packed_whole"}}})",
       "take \"windows\" or \"packed\""},
      {R"({"data": {"sources": [{"paths": ["b"]}], "reading": {"reader": 3}}})",
       "data.reading.reader is 3; it is a string"},
      {R"({"data": {"sources": [{"paths": ["b"]}],
                    "validation": {"sources": [{"paths": ["c"]}]}}})",
       "model.vocabulary is missing: files of tokens do not say how many there may be"},
      {R"({"data": {"files": "a"}})", "data.files is \"a\"; it is a list of strings"},
      {R"({"data": {"files": ["a"], "validation_share": 1}})", "data.validation_share is 1"},
      {R"({"data": {"files": ["a"]}, "train": {"steps": 10, "warmup_steps": 10}})",
       "train.warmup_steps is 10, train.steps is 10"},
      {R"({"data": {"files": ["a"]}, "train": {"precision": {"gradient_wire": "i4"}}})",
       "train.precision.gradient_wire is \"i4\"; it is \"f32\", \"bf16\", \"f16\", \"i8\", "
       "\"f8e4m3\" or \"f8e5m2\""},
      {R"({"data": {"files": ["a"]}, "train": {"precision": {"parameter_wire": "bf16"}}})",
       "train.precision.parameter_wire is \"bf16\"; it is \"f32\", \"i8\""},
      {R"({"data": {"files": ["a"]}, "train": {"precision": {"error_feedback": true}}})",
       "train.precision.error_feedback is true and gradient_wire is \"f32\""},
      {R"({"data": {"files": ["a"]}, "train": {"schedule": "step"}})",
       "train.schedule is \"step\"; it is \"cosine\" or \"linear\""},
      {R"({"data": {"files": ["a"]}, "train": {"learning_rate": 0.1, "final_learning_rate": 0.2}})",
       "train.final_learning_rate is 0.2"},
      {R"({"data": {"files": ["a"]}, "train": {"gemm": "mkl"}})",
       "train.gemm is \"mkl\"; it is \"openblas\" or \"reference\""},
      {R"({"data": {"files": ["a"]}, "train": {"seed": -1}})",
       "train.seed is -1; it is a whole number, 0 or more"},
      {R"({"data": {"files": ["a"]}, "train": {"temperature": 0}})", "train.temperature is 0"},
      {R"({"data": {"files": ["a"]}, "train": {"prompt": ""}})", "train.prompt is empty"},
      {R"({"data": {"files": ["a"]}, "parallel": {"hybrid_shard_degree": -1}})",
       "parallel.hybrid_shard_degree is -1; it is at least 0"},
      {R"({"data": {"files": ["a"]}, "parallel": {"sharded_data_parallel_degree": 0}})",
       "parallel.sharded_data_parallel_degree is 0; it is at least 1"},
      {R"({"data": {"files": ["a"]},
           "parallel": {"hybrid_shard_degree": 2, "sharded_data_parallel_degree": 4}})",
       "parallel.hybrid_shard_degree is 2 and parallel.sharded_data_parallel_degree is 4"},
      {R"({"data": {"files": ["a"]},
           "parallel": {"max_live_elements": 2, "sdp_max_live_parameters": 3}})",
       "parallel.max_live_elements is 2 and parallel.sdp_max_live_parameters is 3"},
      {R"({"data": {"files": ["a"]}, "train": {"clip_norm": 2},
           "parallel": {"sdp_gradient_clipping": 1}})",
       "train.clip_norm is 2 and parallel.sdp_gradient_clipping is 1"},
      {R"({"data": {"files": ["a"]}, "parallel": {"sdp_reduce_bucket_size": 1.5}})",
       "parallel.sdp_reduce_bucket_size is 1.5; it is a whole number"},
      {R"({"data": {"files": ["a"]}, "parallel": {"sdp_hierarchical_allgather": 1}})",
       "parallel.sdp_hierarchical_allgather is 1; it is true or false"},
      {R"({"data": {"files": ["a"]}, "parallel": {"sdp_reduce_bucket": 1}})",
       "(did you mean \"sdp_reduce_bucket_size\"?)"},
      {R"({"data": {"files": ["a"]}, "train": {"micro_steps": 0}})", "train.micro_steps is 0"},
      {R"({"data": {"files": ["a"]}, "train": {"accumulate": "global"}})",
       "train.accumulate is \"global\"; it is \"two_hop\""},
      {R"({"data": {"files": ["a"]}, "parallel": {"gradient_order": "ring"}})",
       "parallel.gradient_order is \"ring\"; it is \"sequence\""},
      {R"({"data": {"files": ["a"]}, "train": {"accumulate": "two_hop"},
           "parallel": {"gradient_order": "tree"}})",
       "leave train.accumulate out, or make it \"local\""},
      {R"({"data": {"files": ["a"]}, "train": {"optimizer": {"momentum": "high"}}})",
       "train.optimizer.momentum is \"high\"; it is a number"},
      {R"({"data": {"files": ["a"]}, "train": {"optimizer": "sgd"}})",
       "\"train.optimizer\" is \"sgd\"; it is a section"},
      {R"({"data": {"files": ["a"]}, "train": {"precision": {"parameters": "f64"}}})",
       "train.precision.parameters is \"f64\"; it is \"f32\", \"bf16\" or \"f16\""},
      {R"({"data": {"files": ["a"]}, "train": {"precision": {"loss_scale": "big"}}})",
       "train.precision.loss_scale is \"big\"; it is a power of two"},
      {R"({"data": {"files": ["a"]}, "train": {"precision": {"loss_scale": {"max": 1}}}})",
       "unknown key \"max\" in section \"train.precision.loss_scale\""},
      {R"({"data": {"files": ["a"]}, "train": {"precision": {"stochastic_rounding": true}}})",
       "train.precision.stochastic_rounding is true and parameters are f32"},
      {R"({"data": {"files": ["a"]}, "checkpoint": {"every": 5}})",
       "checkpoint.every is 5 without checkpoint.folder"},
      {R"({"data": {"files": ["a"]}, "checkpoint": {"folder": "b", "keep": 0}})",
       "checkpoint.keep is 0; it is at least 1"},
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

TEST(TrainConfig, files_are_relative_to_the_configuration) {
  const auto folder = std::filesystem::temp_directory_path();
  const auto path = folder / ("sprat-config-" + std::to_string(getpid()) + ".json");
  std::ofstream(path)
      << R"({"data": {"files": ["a.txt", "/b.txt"], "tokenizer": "t.json"}, "checkpoint": {"folder": "saved"},
          "parallel": {"state_tier": "file:states", "shard_tier": "file:/shards",
                       "offload_activations": true, "activation_tier": "file:tapes"}})";
  const TrainConfig config = read_train_config(path.string());
  std::filesystem::remove(path);
  EXPECT_EQ(config.data.files, (std::vector<std::string>{(folder / "a.txt").string(), "/b.txt"}));
  EXPECT_EQ(config.data.tokenizer, (folder / "t.json").string());
  EXPECT_EQ(config.checkpoint.folder, (folder / "saved").string());
  EXPECT_EQ(config.sharding.state_tier, "file:" + (folder / "states").string());
  EXPECT_EQ(config.sharding.shard_tier, "file:/shards");
  EXPECT_EQ(config.pipeline.activations.tier, "file:" + (folder / "tapes").string());
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

}  // namespace
}  // namespace sprat::train
