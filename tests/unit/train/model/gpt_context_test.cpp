// The GPT whose sequences are cut among ranks: losses have the bits of one rank but for the order
// in which tokens' losses are added, and gradients are within their roundings, however a pipeline,
// checkpoints, tiers and tensor parallelism are combined with it.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>
#include <string>

#include "tests/unit/layers/roundings.hpp"
#include "tests/unit/train/model/played_stages.hpp"

namespace sprat::train::gpt_context_test {
namespace {

/// Of four ranks each chunk is a block of queries, so that the forward has the bits of one rank.
constexpr GptShape long_gpt{.layers = 2, .width = 16, .heads = 2, .context = 512, .vocabulary = 37};
const std::vector<std::pair<int, int>> whole_lengths = {{512, 2}, {512, 1}, {512, 0}};
const std::vector<std::string> ways = {"p2p", "all_gather"};

/// How a model is spread, and over which ranks its sequences.
struct ContextCut {
  const char* name;
  PlayedPlan plan = {};
  int tensor = 1;
  friend void PrintTo(const ContextCut& cut, std::ostream* out) { *out << cut.name; }
};

std::vector<std::int32_t> own_tokens(const std::vector<std::int32_t>& tokens, int ranks, int rank) {
  std::vector<std::int32_t> own;
  for (std::size_t sequence = 0; sequence < tokens.size(); sequence += long_gpt.context) {
    for (const ContextPiece& piece : context_pieces(long_gpt.context, ranks, rank)) {
      const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(sequence) + piece.first;
      own.insert(own.end(), first, first + piece.count);
    }
  }
  return own;
}

std::vector<PlayedBatch> own_batches(int ranks, int rank) {
  std::vector<PlayedBatch> batches = played_batches(long_gpt, whole_lengths);
  for (PlayedBatch& batch : batches) {
    batch.length = long_gpt.context / ranks;
    batch.tokens = own_tokens(batch.tokens, ranks, rank);
    batch.targets = own_tokens(batch.targets, ranks, rank);
  }
  return batches;
}

/// Sums over the ranks that share sequences.
struct Summed {
  std::vector<double> losses;
  PlayedGradients gradients;  ///< Of tensor rank 0.

  void add(const PlayedResult& own) {
    losses.resize(own.losses.size());
    for (std::size_t i = 0; i < losses.size(); ++i) {
      losses[i] += own.losses[i];
    }
    for (const auto& [of, gradient] : own.gradients) {
      std::vector<float>& sum = gradients[of];
      sum.resize(gradient.size());
      for (std::size_t i = 0; i < sum.size(); ++i) {
        sum[i] += gradient[i];
      }
    }
  }
};

/// Rank by rank in order, so that sums are the same every time.
Summed play_cut(const ContextCut& cut, int degree, const std::string& way) {
  std::vector<PlayedResult> results(static_cast<std::size_t>(degree));
  run_virtual_ranks(degree * cut.tensor, Config{}, [&](Communicator& world) {
    const int tensor_rank = world.rank() % cut.tensor, rank = world.rank() / cut.tensor;
    Communicator tensor_ranks = *world.split(rank, world.rank(), "tensor");
    Communicator context_ranks = *world.split(tensor_rank, world.rank(), "context");
    tensor::Group group(tensor_ranks, {.degree = cut.tensor, .sequence_parallel = true});
    const auto batches = own_batches(degree, rank);
    PlayedPlan plan = cut.plan;
    plan.gemm = open_gemm_backend("reference");
    plan.context_ranks = degree > 1 ? &context_ranks : nullptr;
    plan.context = {.cp_comm_type = way};
    std::vector<PlayedRank> ranks = played_ranks(long_gpt, plan, batches, &group);
    const PlayedResult own = play(long_gpt, ranks, batches);
    for (const PlayedRank& one : ranks) {
      EXPECT_EQ(one.stages->bytes_high_water(), one.stages->bytes_planned());
    }
    if (tensor_rank == 0) {
      results[static_cast<std::size_t>(rank)] = own;
    }
  });
  Summed sum;
  for (const PlayedResult& result : results) {
    sum.add(result);
  }
  return sum;
}

const std::vector<ContextCut> context_cuts = {
    {.name = "one_rank"},
    {.name = "two_stages", .plan = {.first_layer = {0, 2}}},
    {.name = "ends_without_blocks",
     .plan = {.schedule = "zero_bubble_h1", .first_layer = {0, 1, 3}}},
    {.name = "recompute", .plan = {.first_layer = {0, 2}, .checkpoint_blocks = 1}},
    {.name = "offload_halves",
     .plan =
         {.schedule = "zero_bubble_h1",
          .first_layer = {0, 2},
          .checkpoint_blocks = 2,
          .activations = {.tier = "memory",
                          .offload = {.unit = HorizonUnit::tensors, .horizon = 2, .keep_last = 0},
                          .poison = true}}},
    {.name = "tensor_ranks", .tensor = 2},
    {.name = "tensor_ranks_in_halves",
     .plan = {.schedule = "zero_bubble_h1", .first_layer = {0, 2}},
     .tensor = 2},
};

/// Tokens' losses are f64, and ranks add them in another order.
double loss_bound(std::size_t microbatch, double loss) {
  const auto& [length, sequences] = whole_lengths[microbatch];
  return 2 * length * sequences * 0x1p-53 * loss;
}

double norm_of(const std::vector<float>& values, const std::vector<float>* other = nullptr) {
  double squares = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = static_cast<double>(values[i]) - (other == nullptr ? 0 : (*other)[i]);
    squares += value * value;
  }
  return std::sqrt(squares);
}

/// docs/numerics.md: each product and the attention of each block forward and backward, the head,
/// the sum over rows of a gradient of weights, and that over ranks.
double gradient_bound(int degree) {
  const int attention = long_gpt.width / long_gpt.heads + 2 * long_gpt.context;
  const int block = attention + 4 * long_gpt.width + long_gpt.hidden();
  const int rows = whole_lengths[0].first * whole_lengths[0].second;
  return 2 *
         layers_test::gamma(2 * (long_gpt.layers * block + long_gpt.vocabulary) + rows + degree);
}

class GptContextCuts : public testing::TestWithParam<ContextCut> {};

TEST_P(GptContextCuts, have_the_losses_of_one_rank_and_gradients_within_roundings) {
  const Summed one = play_cut(context_cuts[0], 1, "");
  for (const int degree : {2, 4}) {
    for (const std::string& way : ways) {
      SCOPED_TRACE(std::to_string(degree) + " ranks, " + way);
      const Summed cut = play_cut(GetParam(), degree, way);
      ASSERT_EQ(cut.losses.size(), one.losses.size());
      for (std::size_t i = 0; i < one.losses.size(); ++i) {
        EXPECT_NEAR(cut.losses[i], one.losses[i], loss_bound(i, one.losses[i]));
      }
      if (GetParam().tensor > 1) {
        continue;  // a rank has parts; below they are held against those of sequences alone
      }
      ASSERT_EQ(cut.gradients.size(), one.gradients.size());
      for (const auto& [of, gradient] : one.gradients) {
        const auto& [unit, tensor, microbatch] = of;
        EXPECT_LE(norm_of(cut.gradients.at(of), &gradient),
                  gradient_bound(degree) * norm_of(gradient))
            << unit << ", tensor " << tensor << ", micro-batch " << microbatch;
      }
    }
  }
}

// What else spreads the model changes no bit of a run whose sequences are cut alike.
TEST_P(GptContextCuts, have_the_bits_of_ranks_that_only_share_sequences) {
  for (const std::string& way : ways) {
    const Summed plain = play_cut(context_cuts[0], 2, way);
    const Summed cut = play_cut(GetParam(), 2, way);
    EXPECT_EQ(cut.losses, plain.losses) << way;
    for (const auto& [of, gradient] : cut.gradients) {
      const auto& [unit, tensor, microbatch] = of;
      const std::vector<float>& whole = plain.gradients.at(of);
      if (gradient.size() == whole.size()) {
        EXPECT_EQ(gradient, whole) << way << ' ' << unit << ", tensor " << tensor;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, GptContextCuts, testing::ValuesIn(context_cuts),
                         [](const auto& cut) { return std::string(cut.param.name); });

/// What the first of two stages gives to the second, by position of the only sequence.
std::vector<float> stream_of(int degree, const std::string& way) {
  const auto width = static_cast<std::size_t>(long_gpt.width);
  std::vector<float> whole(static_cast<std::size_t>(long_gpt.context) * width);
  run_virtual_ranks(degree, Config{}, [&](Communicator& world) {
    auto batches = own_batches(degree, world.rank());
    batches = {batches[1]};
    const PlayedPlan plan{.first_layer = {0, 3},
                          .gemm = open_gemm_backend("reference"),
                          .context_ranks = degree > 1 ? &world : nullptr,
                          .context = {.cp_comm_type = way}};
    std::vector<PlayedRank> ranks = played_ranks(long_gpt, plan, batches);
    GptStages& stages = *ranks[0].stages;
    stages.begin_evaluation(std::vector<MicroBatch>{
        {.length = batches[0].length, .tokens = batches[0].tokens, .targets = {}}});
    std::vector<float> own(stages.most_elements(0));
    ASSERT_EQ(stages.forward(0, 0, {}, own), own.size());
    std::size_t from = 0;
    if (degree == 1) {
      whole = own;
      return;
    }
    for (const ContextPiece& piece : context_pieces(long_gpt.context, degree, world.rank())) {
      const std::size_t count = static_cast<std::size_t>(piece.count) * width;
      std::copy_n(own.data() + from, count,
                  whole.data() + static_cast<std::size_t>(piece.first) * width);
      from += count;
    }
  });
  return whole;
}

TEST(GptContext, has_the_bits_of_one_rank_forward) {
  const std::vector<float> one = stream_of(1, "");
  for (const int degree : {2, 4}) {
    for (const std::string& way : ways) {
      EXPECT_EQ(stream_of(degree, way), one) << degree << ' ' << way;
    }
  }
}

/// By stage, with so many positions of each sequence here.
std::vector<std::size_t> planned_bytes(Communicator* ranks, const std::string& way) {
  GptShape shape = long_gpt;
  shape.context = ranks == nullptr ? long_gpt.context / 2 : long_gpt.context;
  const PlayedPlan plan{.first_layer = {0, 1},
                        .gemm = open_gemm_backend("reference"),
                        .context_ranks = ranks,
                        .context = {.cp_comm_type = way}};
  std::vector<std::size_t> bytes;
  for (const PlayedRank& rank : played_ranks(shape, plan, own_batches(2, 0))) {
    bytes.push_back(rank.stages->bytes_planned());
  }
  return bytes;
}

// Beside as many rows of sequences that are not cut.
TEST(GptContext, plans_what_attention_holds_where_there_is_a_block) {
  constexpr std::size_t page = 4096;
  const std::vector<std::size_t> whole = planned_bytes(nullptr, "");
  for (const std::string& way : ways) {
    run_virtual_ranks(2, Config{}, [&](Communicator& world) {
      const std::vector<std::size_t> cut = planned_bytes(&world, way);
      const ContextCost cost =
          context_cost({.sequences = 2, .length = long_gpt.context, .heads = 2, .head_width = 8}, 2,
                       world.rank(), {.cp_comm_type = way});
      EXPECT_EQ(cut[0], whole[0]) << way;
      EXPECT_GE(cut[1], whole[1] + cost.memory_bytes) << way;
      EXPECT_LT(cut[1], whole[1] + cost.memory_bytes + page) << way;
    });
  }
}

TEST(GptContext, refuses_what_is_no_part_of_its_sequences) {
  run_virtual_ranks(2, Config{}, [](Communicator& world) {
    auto batches = own_batches(2, world.rank());
    std::vector<PlayedRank> ranks = played_ranks(long_gpt, {.context_ranks = &world}, batches);
    std::vector<MicroBatch> wrong(batches.size());
    wrong[0].length = 128;
    try {
      ranks[0].stages->begin_step(wrong);
      ADD_FAILURE() << "taken";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(),
                   "micro-batch 0 has 128 tokens of each sequence; of 512 that 2 ranks share it is "
                   "256");
    }
  });
}

}  // namespace
}  // namespace sprat::train::gpt_context_test
