// The keys of the section parallel that make a pipeline: what is read, what is refused, and in
// which words.
#include "train/config/pipeline_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "sprat/error.hpp"
#include "train/config/config.hpp"

namespace sprat::train {
namespace {

TrainConfig config_of(const std::string& parallel, const std::string& train = "") {
  return parse_train_config(
      R"({"data": {"files": ["a"]}, "train": {)" + train + R"(}, "parallel": {)" + parallel + "}}",
      "test.json");
}

std::string pipeline_refusal(const std::string& parallel, const std::string& train = "") {
  try {
    config_of(parallel, train);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "accepted";
}

TEST(PipelineConfig, has_smps_defaults) {
  const TrainConfig config = config_of("");
  EXPECT_EQ(config.pipeline.degree, 1);
  EXPECT_EQ(config.pipeline.schedule, "interleaved");
  EXPECT_EQ(config.pipeline.placement, "cluster");
  EXPECT_EQ(config.sharding.micro_steps, 1);
  EXPECT_FALSE(config.pipeline.partition.by_hand);
  EXPECT_EQ(config.pipeline.activations.recomputed_together, 0);
  EXPECT_FALSE(config.pipeline.activations.offload);
}

TEST(PipelineConfig, reads_every_key) {
  const PipelineConfig pipeline = config_of(R"("pipeline_parallel_degree": 4, "microbatches": 8,
      "active_microbatches": 6, "pipeline": "1f1b", "stages_per_rank": 2,
      "placement_strategy": "TPD", "auto_partition": false, "partition": {"h.2": 1, "head": 3},
      "default_partition": 2, "activation_checkpointing": "group_3", "offload_activations": true,
      "activation_loading_horizon": 5, "activation_horizon_unit": "tensors",
      "activation_keep_last": 0, "activation_tier": "file:tapes")")
                                      .pipeline;
  EXPECT_EQ(pipeline.degree, 4);
  EXPECT_EQ(pipeline.active_microbatches, 6);
  EXPECT_EQ(pipeline.schedule, "1f1b");
  EXPECT_EQ(pipeline.stages_per_rank, 2);
  EXPECT_EQ(pipeline.placement, "TPD");
  EXPECT_TRUE(pipeline.partition.by_hand);
  EXPECT_EQ(pipeline.partition.pins, (std::map<std::string, int>{{"h.2", 1}, {"head", 3}}));
  EXPECT_EQ(pipeline.partition.default_stage, 2);
  EXPECT_EQ(pipeline.activations.recomputed_together, 3);
  EXPECT_TRUE(pipeline.activations.offload);
  EXPECT_EQ(pipeline.activations.horizon, 5);
  EXPECT_EQ(pipeline.activations.unit, HorizonUnit::tensors);
  EXPECT_EQ(pipeline.activations.keep_last, 0);
  EXPECT_EQ(pipeline.activations.tier, "file:tapes");
}

TEST(PipelineConfig, takes_either_name_of_one_thing) {
  EXPECT_EQ(config_of(R"("microbatches": 4)").sharding.micro_steps, 4);
  EXPECT_EQ(config_of("", R"("micro_steps": 4)").sharding.micro_steps, 4);
  EXPECT_EQ(config_of(R"("microbatches": 4)", R"("micro_steps": 4)").sharding.micro_steps, 4);
  EXPECT_EQ(config_of(R"("partitions": 2)").pipeline.degree, 2);
}

TEST(PipelineConfig, cuts_layers_for_memory_where_nothing_is_said) {
  const PipelineConfig cut = config_of(R"("tensor_parallel_degree": 2)").pipeline;
  EXPECT_EQ(cut.tensor_degree, 2);
  EXPECT_EQ(cut.optimize, Optimize::memory);
  const std::string speed = R"("tensor_parallel_degree": 2, "optimize": "speed")";
  EXPECT_EQ(config_of(speed).pipeline.optimize, Optimize::speed);
}

TEST(PipelineConfig, lets_tensor_ranks_read_the_same_samples_or_their_own) {
  const std::string degree = R"("tensor_parallel_degree": 2)";
  EXPECT_TRUE(config_of(degree).pipeline.prescaled_batch);
  EXPECT_TRUE(config_of(degree + R"(, "prescaled_batch": true)").pipeline.prescaled_batch);
  EXPECT_FALSE(config_of(degree + R"(, "prescaled_batch": false)").pipeline.prescaled_batch);
}

TEST(PipelineConfig, takes_degrees_that_divide_the_heads_and_the_pieces_of_the_product) {
  const auto answer = [](int degree, const std::string& gemm) {
    try {
      parse_train_config(R"({"model": {"width": 24, "heads": 12}, "data": {"files": ["a"]},
          "train": {"gemm": ")" +
                             gemm + R"("}, "parallel": {"tensor_parallel_degree": )" +
                             std::to_string(degree) + "}}",
                         "test.json");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return std::string(error.what());
    }
    return std::string("taken");
  };
  for (const int degree : {1, 2, 3, 4, 6, 12}) {
    EXPECT_EQ(answer(degree, "openblas"), "taken") << degree;
  }
  for (const int degree : {1, 2, 4}) {
    EXPECT_EQ(answer(degree, "reference"), "taken") << degree;
  }
  for (const int degree : {3, 6, 12}) {
    EXPECT_EQ(answer(degree, "reference"),
              "test.json: parallel.tensor_parallel_degree " + std::to_string(degree) +
                  " and train.gemm \"reference\", which adds up 4 pieces so that bits do not "
                  "depend on the degree; take a divisor of 4, or \"openblas\"");
  }
  EXPECT_THAT(answer(5, "openblas"), testing::HasSubstr("5 does not divide model.heads 12"));
}

TEST(PipelineConfig, cuts_sequences_in_smps_words) {
  const PipelineConfig cut = config_of(R"("context_parallel_degree": 4)").pipeline;
  EXPECT_EQ(cut.context_degree, 4);
  EXPECT_EQ(cut.cp_comm_type, "p2p");
  const std::string gathered = R"("cp_comm_type": "all_gather")";
  EXPECT_EQ(config_of(gathered).pipeline.cp_comm_type, "all_gather");
  EXPECT_EQ(config_of(gathered).pipeline.context_degree, 1);
}

TEST(PipelineConfig, takes_ways_of_other_libraries_where_they_are_off) {
  EXPECT_EQ(pipeline_refusal(R"("tensor_parallel_degree": 1, "context_parallel_degree": 1,
                                "expert_parallel_degree": 1)"),
            "accepted");
}

TEST(PipelineConfig, says_in_smps_words_what_is_computed_anew) {
  for (const char* word : {"none", "each", "contiguous", "group_2"}) {
    const std::string key = std::string(R"("activation_checkpointing": ")") + word + '"';
    EXPECT_EQ(recomputation_text(config_of(key).pipeline.activations), word);
  }
}

TEST(PipelineConfig, refuses_in_one_line_with_values_and_a_remedy) {
  const struct {
    const char* parallel;
    const char* said;
    const char* train = "";
  } cases[] = {
      {R"("pipeline_parallel_degree": 0)",
       "parallel.pipeline_parallel_degree is 0; it is an integer, at least 1"},
      {R"("pipeline_parallel_degree": 2, "partitions": 4)",
       "parallel.pipeline_parallel_degree is 2 and parallel.partitions is 4, two names"},
      {R"("microbatches": 4)",
       "train.micro_steps is 2 and parallel.microbatches is 4, two names of one thing",
       R"("micro_steps": 2)"},
      {R"("microbatches": 0)", "parallel.microbatches is 0; it is an integer, at least 1"},
      {R"("microbatches": 4, "active_microbatches": 6)",
       "parallel.active_microbatches is 6 and parallel.microbatches 4: no more are active than "
       "there are; take active_microbatches 4 or less"},
      {R"("stages_per_rank": -1)", "parallel.stages_per_rank is -1; it is at least 0"},
      {R"("placement_strategy": "DTT")",
       "parallel.placement_strategy is \"DTT\"; it is one of \"cluster\", \"spread\", \"DPT\""},
      {R"("tensor_parallel_degree": 0)",
       "parallel.tensor_parallel_degree is 0; it is an integer, at least 1"},
      {R"("optimize": "time")", "parallel.optimize is \"time\"; it is \"memory\" (tensor ranks"},
      {R"("tensor_parallel_degree": 3)",
       "parallel.tensor_parallel_degree 3 does not divide model.heads 4; take a divisor of 4, or 6 "
       "heads"},
      {R"("prescaled_batch": 1)", "parallel.prescaled_batch is 1; it is"},
      {R"("context_parallel_degree": 0)",
       "parallel.context_parallel_degree is 0; it is an integer, at least 1"},
      {R"("cp_comm_type": "ring")",
       "parallel.cp_comm_type is \"ring\"; it is one of \"p2p\", \"all_gather\""},
      {R"("expert_parallel_degree": 4)",
       "parallel.expert_parallel_degree is 4; the GPT has no experts: keep 1, and for less memory "
       "a rank take parallel.pipeline_parallel_degree 4 or parallel.hybrid_shard_degree 4"},
      {R"("partition": [])", "parallel.partition is []; it is the names of the stages' first"},
      {R"("partition": {"h.1": -1})", "parallel.partition is {\"h.1\":-1}; it is the names"},
      {R"("partition": ["embedding"], "default_partition": 0)",
       "parallel.default_partition is 0 and parallel.partition names each stage's first layer"},
      {R"("partition": ["embedding"], "auto_partition": true)",
       "parallel.auto_partition is true and the configuration says where layers go"},
      {R"("default_partition": 0, "partition_file": "a.json")",
       "parallel.partition_file is \"a.json\" and the configuration says where layers go too"},
      {R"("partition_file": "a.json", "load_partition": false)",
       "parallel.load_partition is false and parallel.partition_file is \"a.json\"; give both"},
      {R"("load_partition": true)", "parallel.load_partition is true and parallel.partition_file"},
      {R"("activation_checkpointing": "group_0")",
       "parallel.activation_checkpointing is \"group_0\"; it is \"none\", \"each\""},
      {R"("activation_checkpointing": "group_2x")", "activation_checkpointing is \"group_2x\""},
      {R"("activation_loading_horizon": 4)",
       "parallel.activation_loading_horizon is given and parallel.offload_activations is not true"},
      {R"("activation_keep_last": 2)", "parallel.activation_keep_last is given and"},
      {R"("activation_tier": "file:a")", "parallel.activation_tier is given and"},
      {R"("offload_activations": true, "activation_loading_horizon": 0)",
       "parallel.activation_loading_horizon is 0; it is an integer, at least 1"},
      {R"("offload_activations": true, "activation_horizon_unit": "layers")",
       "parallel.activation_horizon_unit is \"layers\"; it is \"tasks\" (SMP v1's) or"},
      {R"("activation_horizon_limit": 3)", "parallel.activation_horizon_limit is given and"},
      {R"("offload_activations": true, "activation_horizon_limit": 0)",
       "parallel.activation_horizon_limit is 0; it is at least 1"},
      {R"("offload_activations": true, "activation_loading_horizon": 2,
          "activation_horizon_limit": 3)",
       "parallel.activation_loading_horizon is 2 and parallel.activation_horizon_limit is 3"},
      {R"("offload_activations": true, "activation_keep_last": -1)",
       "parallel.activation_keep_last is -1; it is at least 0"},
  };
  for (const auto& [parallel, said, train] : cases) {
    const std::string message = pipeline_refusal(parallel, train);
    EXPECT_THAT(message, testing::HasSubstr(said)) << parallel;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(PipelineConfig, a_horizon_alone_counts_tasks_and_one_that_is_chosen_up_to_two_tensors) {
  const auto activations = [](const std::string& keys) {
    return parse_train_config(
               R"({"data": {"files": ["text"]}, "parallel": {"offload_activations": true)" + keys +
                   "}}",
               "test.json")
        .pipeline.activations;
  };
  EXPECT_EQ(activations("").unit, HorizonUnit::tensors);
  EXPECT_EQ(activations("").horizon, 0);
  EXPECT_EQ(activations("").horizon_limit, 2);
  EXPECT_EQ(activations(R"(, "activation_horizon_unit": "tasks")").horizon_limit, 4);
  EXPECT_EQ(activations(R"(, "activation_horizon_limit": 7)").horizon_limit, 7);
  EXPECT_EQ(activations(R"(, "activation_loading_horizon": 4)").unit, HorizonUnit::tasks);
  EXPECT_EQ(activations(R"(, "activation_horizon_unit": "tasks")").unit, HorizonUnit::tasks);
}

}  // namespace
}  // namespace sprat::train
