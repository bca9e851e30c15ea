// A model that is cut trains with the bits of one that is not: every schedule, with activations
// computed anew or moved away, under every row of the placement table.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "sprat/pipeline.hpp"
#include "tests/unit/train/cut_jobs.hpp"

namespace sprat::train {
namespace {

using testing::HasSubstr;

class PipelineLattice : public CutJobs {};

constexpr const char* of_four = R"("microbatches": 4)";

TEST_F(PipelineLattice, every_schedule_gives_the_bits_of_a_model_that_is_not_cut) {
  const auto whole = losses({1, of_four});
  ASSERT_EQ(whole.size(), 4u);
  for (const int degree : {2, 4}) {
    for (const std::string& kind : mp::schedule_kinds()) {
      const bool v = kind == "zb_v" || kind == "dualpipe_v";
      if (v && degree == 4) {
        continue;  // eight stages of five layers
      }
      EXPECT_EQ(losses({degree, std::string(of_four) + R"(, "pipeline_parallel_degree": )" +
                                    std::to_string(degree) + R"(, "pipeline": ")" + kind + '"'}),
                whole)
          << kind << ", degree " << degree;
    }
  }
}

TEST_F(PipelineLattice, stages_of_one_rank_follow_each_other_in_turns) {
  EXPECT_EQ(losses({2, R"("microbatches": 4, "pipeline_parallel_degree": 2,
                          "pipeline": "virtual_stages", "stages_per_rank": 2)"}),
            losses({1, of_four}));
}

TEST_F(PipelineLattice, activations_that_are_made_anew_or_leave_change_no_bit) {
  const auto whole = losses({1, of_four});
  for (const char* activations :
       {R"("activation_checkpointing": "each")", R"("activation_checkpointing": "contiguous")",
        R"("activation_checkpointing": "group_2")", R"("offload_activations": true)",
        R"("offload_activations": true, "activation_horizon_limit": 3,
           "activation_keep_last": 0, "activation_tier": "file:.")",
        R"("offload_activations": true, "activation_horizon_unit": "tensors",
           "activation_loading_horizon": 1, "activation_keep_last": 0, "activation_tier": "file:.",
           "activation_checkpointing": "each")"}) {
    for (const char* pipeline :
         {"", R"("pipeline_parallel_degree": 2, "pipeline": "gpipe", )",
          R"("pipeline_parallel_degree": 2, "pipeline": "zero_bubble_h1", )"}) {
      const int ranks = std::string(pipeline).empty() ? 1 : 2;
      EXPECT_EQ(losses({ranks, fmt::format("{}, {}{}", of_four, pipeline, activations)}), whole)
          << pipeline << activations;
    }
  }
}

TEST_F(PipelineLattice, a_horizon_that_nobody_gives_is_chosen_after_the_second_step) {
  const std::string keys = std::string(of_four) + R"(, "pipeline_parallel_degree": 2,
      "offload_activations": true, "activation_keep_last": 0, "activation_horizon_limit": )";
  // Which one depends on how fast this machine was.
  constexpr const char* told = "\nactivations come back with a horizon of ";
  losses({2, keys + "3"});
  EXPECT_THAT(output_, HasSubstr(told));
  losses({2, keys + "1"});
  EXPECT_THAT(output_, testing::Not(HasSubstr(told)));
}

TEST_F(PipelineLattice, every_row_gives_the_bits_of_a_model_that_is_not_cut) {
  const struct {
    const char* parallel;
    const char* train = "";
  } forms[] = {
      {R"("strategy": "ddp")"},
      {R"("hybrid_shard_degree": 2)"},
      {R"("strategy": "hfsdp", "hybrid_shard_degree": 2, "placement_strategy": "spread")"},
      {R"("strategy": "zero1", "persistence_threshold": 100)"},
      {R"("state_tier": "file:.", "shard_tier": "file:.")"},
      {"\"prefetch_units\": 2",
       R"(, "precision": {"parameters": "bf16", "stochastic_rounding": true})"},
      {"\"prefetch_units\": 0", R"(, "precision": {"gradient_wire": "f16"})"},
      {"\"reductions_in_flight\": 2", R"(, "accumulate": "local", "batch": 19)"},
  };
  for (const auto& [parallel, train] : forms) {
    const std::string keys = fmt::format("{}, {}", of_four, parallel);
    EXPECT_EQ(losses({4, keys + R"(, "pipeline_parallel_degree": 2)", train}),
              losses({2, keys, train}))
        << keys << train;
  }
}

TEST_F(PipelineLattice, under_a_tree_only_the_number_of_all_micro_batches_matters) {
  const auto bits = [&](int ranks, int microbatches, const std::string& more = "") {
    return losses({ranks, R"("gradient_order": "tree", "microbatches": )" +
                              std::to_string(microbatches) + more});
  };
  const auto one = bits(1, 8);
  const std::string two = R"(, "pipeline_parallel_degree": 2)";
  EXPECT_EQ(bits(2, 8, two + R"(, "pipeline": "zb_v")"), one);
  EXPECT_EQ(bits(4, 4, two + R"(, "pipeline": "1f1b", "activation_checkpointing": "each")"), one);
  EXPECT_EQ(bits(8, 2, two + R"(, "hybrid_shard_degree": 2)"), one);
  EXPECT_NE(bits(2, 4, two), one) << "half as many micro-batches";
}

/// Behind a validation, whose visits are those of a step where a rank has one unit.
TEST_F(PipelineLattice, under_a_tree_ranks_of_one_unit_know_their_micro_batches) {
  const std::string tree = R"("gradient_order": "tree", "microbatches": 8)";
  const auto one = losses({1, tree});
  for (const char* more : {"", R"(, "activation_checkpointing": "each")"}) {
    EXPECT_EQ(losses({4, tree + R"(, "pipeline_parallel_degree": 4, "pipeline": "1f1b")" + more}),
              one)
        << more;
  }
}

TEST_F(PipelineLattice, what_one_cut_has_saved_another_goes_on_with) {
  const auto whole = losses({2, of_four});
  losses(
      {.ranks = 4, .parallel = R"("microbatches": 4, "pipeline_parallel_degree": 2)", .steps = 2});
  EXPECT_EQ(losses({.ranks = 2, .parallel = of_four, .resume = true}), whole);
}

TEST_F(PipelineLattice, stops_on_every_rank_and_saves) {
  StopRequest stop;
  stop.ask(SIGTERM);
  losses({4, R"("microbatches": 4, "pipeline_parallel_degree": 4, "pipeline": "1f1b")"}, &stop);
  EXPECT_THAT(output_, HasSubstr("stopped after step 1, saved in"));
}

TEST_F(PipelineLattice, tells_bubble_stall_and_memory) {
  losses({2, R"("microbatches": 4, "pipeline_parallel_degree": 2, "offload_activations": true)"});
  EXPECT_THAT(output_, HasSubstr("pipelines of 2 ranks, schedule interleaved; stages: embedding"));
  EXPECT_THAT(output_, HasSubstr("what a rank holds at most while it trains: "));
  EXPECT_THAT(output_, HasSubstr(" MiB messages between stages"));
  EXPECT_THAT(output_, testing::ContainsRegex("bubble [0-9]+ %  stall [0-9]+ %"));
  EXPECT_GT(record_.at("bubble"), 0);
  EXPECT_LT(record_.at("bubble"), 1);
  EXPECT_GE(record_.at("message_wait_ms"), 0);
  EXPECT_GE(record_.at("load_stall_ms"), 0);
}

}  // namespace
}  // namespace sprat::train
