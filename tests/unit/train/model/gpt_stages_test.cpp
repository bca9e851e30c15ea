// The GPT cut into stages: however it is cut and played, the bits are those of one rank that
// computes micro-batch after micro-batch and keeps everything.
#include "train/model/gpt_stages.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "tests/unit/train/model/played_stages.hpp"

namespace sprat::train {
namespace {

using testing::HasSubstr;

const std::vector<std::pair<int, int>> even = {{8, 2}, {8, 2}, {8, 2}, {8, 2}};

void expect_equal_bits(const PlayedResult& one, const PlayedResult& other) {
  EXPECT_EQ(one.losses, other.losses);
  ASSERT_EQ(one.gradients.size(), other.gradients.size());
  for (const auto& [of, gradient] : one.gradients) {
    const auto found = other.gradients.find(of);
    const auto& [unit, index, microbatch] = of;
    ASSERT_NE(found, other.gradients.end());
    EXPECT_EQ(gradient, found->second)
        << "unit " << unit << ", parameter " << index << ", micro-batch " << microbatch;
  }
}

struct Cut {
  const char* name;
  PlayedPlan plan;
  friend void PrintTo(const Cut& cut, std::ostream* out) { *out << cut.name; }
};

ActivationOptions offloaded(HorizonUnit unit, int horizon) {
  return {.tier = "memory",
          .offload = {.unit = unit, .horizon = horizon, .keep_last = 0},
          .poison = true};
}

// Layers are the embedding, four blocks and the head.
const std::vector<Cut> cuts = {
    {"two_stages", {.first_layer = {0, 3}}},
    {"embedding_alone", {.schedule = "gpipe", .first_layer = {0, 1}}},
    {"head_alone", {.first_layer = {0, 5}}},
    {"four_stages", {.first_layer = {0, 2, 3, 4}}},
    {"four_stages_interleaved", {.schedule = "interleaved", .first_layer = {0, 1, 3, 5}}},
    {"two_ranks_of_two",
     {.schedule = "virtual_stages", .stages_per_rank = 2, .first_layer = {0, 1, 3, 4}}},
    {"halves", {.schedule = "zero_bubble_h1", .first_layer = {0, 2, 3, 4}}},
    {"halves_as_a_v", {.schedule = "zb_v", .stages_per_rank = 2, .first_layer = {0, 2, 3, 4}}},
    {"overlaps", {.schedule = "dualpipe_v", .stages_per_rank = 2, .first_layer = {0, 2, 3, 4}}},
    {"recompute_each", {.checkpoint_blocks = 1}},
    {"recompute_groups", {.checkpoint_blocks = 3}},
    {"recompute_contiguous", {.first_layer = {0, 3}, .checkpoint_blocks = whole_stage}},
    {"recompute_by_actions", {.first_layer = {0, 3}, .recomputed = true, .checkpoint_blocks = 2}},
    {"recompute_halves",
     {.schedule = "zero_bubble_h1", .first_layer = {0, 3}, .checkpoint_blocks = 2}},
    {"offload", {.schedule = "gpipe", .activations = offloaded(HorizonUnit::tensors, 1)}},
    {"offload_by_tasks",
     {.schedule = "gpipe", .first_layer = {0, 3}, .activations = offloaded(HorizonUnit::tasks, 2)}},
    {"offload_halves",
     {.schedule = "zero_bubble_h1",
      .first_layer = {0, 3},
      .activations = offloaded(HorizonUnit::tensors, 2)}},
    {"offload_checkpoints",
     {.schedule = "gpipe",
      .checkpoint_blocks = 2,
      .activations = offloaded(HorizonUnit::tensors, 2)}},
};

class GptCuts : public testing::TestWithParam<Cut> {};

TEST_P(GptCuts, have_the_bits_of_one_rank) {
  const auto batches = played_batches(small_gpt, even);
  expect_equal_bits(play(small_gpt, {}, batches), play(small_gpt, GetParam().plan, batches));
}

TEST_P(GptCuts, have_them_with_micro_batches_of_any_length) {
  const auto batches = played_batches(small_gpt, {{8, 2}, {5, 1}, {3, 4}, {8, 0}});
  expect_equal_bits(play(small_gpt, {}, batches), play(small_gpt, GetParam().plan, batches));
}

TEST_P(GptCuts, use_units_as_gpt_visits_says) {
  const auto batches = played_batches(small_gpt, even);
  std::vector<PlayedRank> ranks = played_ranks(small_gpt, GetParam().plan, batches);
  play(small_gpt, ranks, batches);
  for (const PlayedRank& rank : ranks) {
    const GptStagesOptions& options = rank.options;
    EXPECT_EQ(rank.parameters->visits(),
              gpt_visits(small_gpt, {.placement = options.placement,
                                     .checkpoint_blocks = options.checkpoint_blocks,
                                     .actions = options.actions}));
  }
}

TEST_P(GptCuts, hold_what_was_planned) {
  const auto batches = played_batches(small_gpt, even);
  std::vector<PlayedRank> ranks = played_ranks(small_gpt, GetParam().plan, batches);
  play(small_gpt, ranks, batches);
  for (const PlayedRank& rank : ranks) {
    EXPECT_EQ(rank.stages->bytes_high_water(), rank.stages->bytes_planned());
    EXPECT_EQ(rank.stages->counters().stores > 0, !GetParam().plan.activations.tier.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Of, GptCuts, testing::ValuesIn(cuts),
                         [](const auto& cut) { return std::string(cut.param.name); });

std::size_t planned_bytes(const PlayedPlan& plan) {
  return played_ranks(small_gpt, plan, played_batches(small_gpt, even))[0].stages->bytes_planned();
}

TEST(GptStages, plan_less_memory_with_checkpoints_and_less_again_where_those_leave) {
  const std::size_t kept = planned_bytes({.schedule = "gpipe"});
  const std::size_t each = planned_bytes({.schedule = "gpipe", .checkpoint_blocks = 1});
  const std::size_t away = planned_bytes({.schedule = "gpipe",
                                          .checkpoint_blocks = 1,
                                          .activations = offloaded(HorizonUnit::tensors, 1)});
  EXPECT_LT(each, kept);
  EXPECT_LT(away, each);
}

TEST(GptStages, hold_half_as_much_of_a_tape_for_half_the_micro_batches_in_flight) {
  // 1f1b on one rank has one micro-batch in flight, gpipe all four.
  const std::size_t all = planned_bytes({.schedule = "gpipe"}), one = planned_bytes({});
  std::size_t longer = 0;
  {
    const auto batches = played_batches(small_gpt, {{8, 2}});
    longer = played_ranks(small_gpt, {}, batches)[0].stages->bytes_planned();
  }
  EXPECT_EQ(one, longer);
  EXPECT_GT(all, one);
}

/// A rank with the whole model and its own parameters.
struct OneRank {
  explicit OneRank(GptStagesOptions options)
      : parameters(gpt_units(small_gpt, 5)),
        stages(small_gpt, std::move(options), stages_gemm(), parameters) {}
  WholeParameters parameters;
  GptStages stages;
};

template <class Call>
std::string complaint_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(GptStages, name_tokens_and_targets_outside_the_vocabulary) {
  OneRank rank({.max_tokens = 8});
  const std::vector<std::int32_t> good(4, 1), bad = {1, 2, 37, 4};
  const auto forward = [&](const auto& tokens, const auto& targets) {
    return complaint_of([&] {
      const MicroBatch one{.length = 4, .tokens = tokens, .targets = targets};
      rank.stages.begin_step(std::span(&one, 1));
      rank.stages.forward(0, 0, {}, {});
    });
  };
  EXPECT_THAT(forward(bad, good), HasSubstr("token 37 of row 2"));
  EXPECT_THAT(forward(good, bad), HasSubstr("target 37 of row 2"));
  EXPECT_EQ(forward(good, good), "no error");  // a step that failed leaves nothing behind
}

TEST(GptStages, refuse_micro_batches_that_do_not_fit) {
  OneRank rank({.max_tokens = 8});
  const std::vector<std::int32_t> nine(9, 1);
  const auto begin = [&](int length, std::size_t count) {
    return complaint_of([&] {
      const MicroBatch one{.length = length, .tokens = std::span(nine).first(count)};
      rank.stages.begin_step(std::span(&one, 1));
    });
  };
  EXPECT_THAT(begin(9, 9), HasSubstr("micro-batch 0 has sequences of 9 tokens; the model's"));
  EXPECT_THAT(begin(3, 9), HasSubstr("micro-batch 0 has 9 tokens; memory is for 8"));
  EXPECT_THAT(begin(4, 7), HasSubstr("micro-batch 0 has 7 tokens, which are no sequences of 4"));
}

TEST(GptStages, refuse_actions_in_another_order) {
  OneRank rank({.max_tokens = 8});
  const std::vector<std::int32_t> tokens(4, 1);
  const MicroBatch one{.length = 4, .tokens = tokens, .targets = tokens};
  rank.stages.begin_step(std::span(&one, 1));
  EXPECT_THAT(complaint_of([&] { rank.stages.backward(0, 0, {}, {}); }),
              HasSubstr("0B0 is not action 0 of a step"));
}

TEST(GptStages, evaluate_as_a_step_does) {
  const auto batches = played_batches(small_gpt, even);
  std::vector<PlayedRank> ranks = played_ranks(small_gpt, {}, batches);
  const PlayedResult step = play(small_gpt, ranks, batches);
  std::vector<MicroBatch> microbatches;
  for (const PlayedBatch& batch : batches) {
    microbatches.push_back(
        {.length = batch.length, .tokens = batch.tokens, .targets = batch.targets});
  }
  GptStages& stages = *ranks[0].stages;
  stages.begin_evaluation(microbatches);
  for (int microbatch = 0; microbatch < 4; ++microbatch) {
    stages.forward(0, microbatch, {}, {});
    const double loss = stages.losses()[static_cast<std::size_t>(microbatch)];
    // Logits are computed in pieces, whose products may round otherwise.
    const double bound = 100 * double{std::numeric_limits<float>::epsilon()} * loss;
    EXPECT_NEAR(loss, step.losses[static_cast<std::size_t>(microbatch)], bound);
    const std::span<const double> sequences = stages.sequence_losses(microbatch);
    const MicroBatch& one = microbatches[static_cast<std::size_t>(microbatch)];
    EXPECT_EQ(sequences.size(), one.tokens.size() / static_cast<std::size_t>(one.length));
    EXPECT_NEAR(std::accumulate(sequences.begin(), sequences.end(), 0.0), loss,
                100 * std::numeric_limits<double>::epsilon() * loss);
  }
}

}  // namespace
}  // namespace sprat::train
