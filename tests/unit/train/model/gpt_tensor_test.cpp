// The GPT whose layers are cut among tensor ranks: with the reference product losses and gradients
// have the bits of one rank, however a pipeline, checkpoints and tiers are combined with it.
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <string>

#include "tests/unit/sanitized.hpp"
#include "tests/unit/train/model/played_stages.hpp"
#include "train/model/gpt_index.hpp"

namespace sprat::train {
namespace {

constexpr GptShape four_heads{.layers = 4, .width = 16, .heads = 4, .context = 8, .vocabulary = 37};
const std::vector<std::pair<int, int>> lengths_to_cut = {{8, 2}, {5, 1}, {3, 4}, {8, 0}};

/// What tensor ranks have of gradients, put together to whole ones.
class WholeGradients {
 public:
  void add(const PlayedRank& rank) {
    const std::lock_guard lock(mutex_);
    for (const auto& [of, held] : rank.parameters->taken()) {
      const auto& [name, tensor, microbatch] = of;
      const auto unit = std::ranges::find(rank.units, name, &UnitSpec::name);
      place(*unit, tensor, held, whole_[of]);
    }
  }
  const PlayedGradients& whole() const { return whole_; }

 private:
  static void place(const UnitSpec& unit, int tensor, const std::vector<float>& held,
                    std::vector<float>& whole) {
    const HeldTensor parts = held_tensors(unit)[static_cast<std::size_t>(tensor)];
    std::size_t at = 0;
    for (int part = 0; part < parts.parts; ++part) {
      const auto index = static_cast<std::size_t>(parts.first + part);
      const Box all = whole_box(unit.parameters[index].shape);
      whole.resize(static_cast<std::size_t>(element_count(all)));
      for_each_run(all, held_box(unit.parameters[index]), [&](BoxRun run) {
        for (std::int64_t i = 0; i < run.count; ++i) {
          whole[static_cast<std::size_t>(run.offset + i)] = held[at++];
        }
      });
    }
    EXPECT_EQ(at, held.size());
  }

  std::mutex mutex_;
  PlayedGradients whole_;
};

struct TensorCut {
  const char* name;
  PlayedPlan plan;
  friend void PrintTo(const TensorCut& cut, std::ostream* out) { *out << cut.name; }
};

PlayedPlan with_reference(PlayedPlan plan) {
  plan.gemm = open_gemm_backend("reference");
  return plan;
}

/// The losses on every rank, and whole gradients.
PlayedResult play_cut(const TensorCut& cut, const tensor::Parallelism& how) {
  const auto batches = played_batches(four_heads, lengths_to_cut);
  WholeGradients gradients;
  PlayedResult result;
  std::mutex mutex;
  run_virtual_ranks(how.degree, Config{}, [&](Communicator& world) {
    tensor::Group group(world, how);
    std::vector<PlayedRank> ranks =
        played_ranks(four_heads, with_reference(cut.plan), batches, &group);
    const PlayedResult own = play(four_heads, ranks, batches);
    for (const PlayedRank& rank : ranks) {
      gradients.add(rank);
      EXPECT_EQ(rank.stages->bytes_high_water(), rank.stages->bytes_planned());
    }
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(result.losses.empty() || result.losses == own.losses) << "rank " << world.rank();
    result.losses = own.losses;
  });
  result.gradients = gradients.whole();
  return result;
}

const std::vector<TensorCut> tensor_cuts = {
    {"one_rank", {}},
    {"two_stages", {.first_layer = {0, 3}}},
    {"halves", {.schedule = "zero_bubble_h1", .first_layer = {0, 2, 3, 4}}},
    {"recompute", {.first_layer = {0, 3}, .checkpoint_blocks = 1}},
    {"offload_halves",
     {.schedule = "zero_bubble_h1",
      .first_layer = {0, 3},
      .checkpoint_blocks = 2,
      .activations = {.tier = "memory",
                      .offload = {.unit = HorizonUnit::tensors, .horizon = 2, .keep_last = 0},
                      .poison = true}}},
};

class GptTensorCuts : public testing::TestWithParam<TensorCut> {};

TEST_P(GptTensorCuts, have_the_bits_of_one_rank_with_the_reference_product) {
  const PlayedResult one = play_cut(tensor_cuts[0], {});
  for (const int degree : {2, 4}) {
    for (const bool sequence_parallel : {false, true}) {
      SCOPED_TRACE(std::to_string(degree) + (sequence_parallel ? " with own rows" : ""));
      const PlayedResult cut =
          play_cut(GetParam(), {.degree = degree, .sequence_parallel = sequence_parallel});
      EXPECT_EQ(cut.losses, one.losses);
      ASSERT_EQ(cut.gradients.size(), one.gradients.size());
      for (const auto& [of, gradient] : one.gradients) {
        const auto& [unit, tensor, microbatch] = of;
        EXPECT_EQ(cut.gradients.at(of), gradient)
            << unit << ", tensor " << tensor << ", micro-batch " << microbatch;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, GptTensorCuts, testing::ValuesIn(tensor_cuts),
                         [](const auto& cut) { return std::string(cut.param.name); });

std::vector<double> evaluated_losses(const tensor::Parallelism& how) {
  const auto batches = played_batches(four_heads, lengths_to_cut);
  std::vector<double> losses;
  std::mutex mutex;
  run_virtual_ranks(how.degree, Config{}, [&](Communicator& world) {
    tensor::Group group(world, how);
    std::vector<PlayedRank> ranks = played_ranks(four_heads, with_reference({}), batches, &group);
    std::vector<MicroBatch> microbatches;
    for (const PlayedBatch& batch : batches) {
      microbatches.push_back(
          {.length = batch.length, .tokens = batch.tokens, .targets = batch.targets});
    }
    GptStages& stages = *ranks[0].stages;
    stages.begin_evaluation(microbatches);
    for (int microbatch = 0; std::cmp_less(microbatch, batches.size()); ++microbatch) {
      stages.forward(0, microbatch, {}, {});
    }
    const std::lock_guard lock(mutex);
    losses.assign(stages.losses().begin(), stages.losses().end());
  });
  return losses;
}

TEST(GptTensor, evaluates_with_the_bits_of_one_rank) {
  const std::vector<double> one = evaluated_losses({});
  for (const int degree : {2, 4}) {
    EXPECT_EQ(evaluated_losses({.degree = degree}), one);
    EXPECT_EQ(evaluated_losses({.degree = degree, .sequence_parallel = true}), one);
  }
}

/// By name, how many tensor ranks count each element of a whole tensor, all units taken together.
std::map<std::string, std::vector<int>> counted_elements(int degree) {
  std::map<std::string, std::vector<int>> counted;
  for (int rank = 0; rank < degree; ++rank) {
    const GptPlacement placement{.tensor = {.degree = degree}, .tensor_rank = rank};
    for (const UnitSpec& unit : gpt_units(four_heads, 5, placement)) {
      for (const ParameterSpec& parameter : unit.parameters) {
        const Box all = whole_box(parameter.shape);
        std::vector<int>& counts = counted[unit.name + " " + parameter.name];
        counts.resize(static_cast<std::size_t>(element_count(all)));
        const int counts_for = parameter.tied ? 0 : 1;
        for_each_run(all, held_box(parameter), [&](BoxRun run) {
          for (std::int64_t i = run.offset; i < run.offset + run.count; ++i) {
            counts[static_cast<std::size_t>(i)] += counts_for;
          }
        });
      }
    }
  }
  return counted;
}

TEST(GptUnits, have_each_element_on_one_tensor_rank_that_counts_it) {
  const auto whole = counted_elements(1);
  for (const int degree : {2, 4}) {
    EXPECT_EQ(counted_elements(degree), whole) << degree;
  }
}

TEST(GptUnits, of_a_tensor_rank_have_query_key_and_value_of_its_heads_as_one_tensor) {
  const GptPlacement placement{.tensor = {.degree = 2}, .tensor_rank = 1};
  const UnitSpec block = gpt_units(four_heads, 5, placement)[2];
  const HeldTensor qkv = held_tensors(block)[qkv_weight];
  EXPECT_EQ(qkv.parts, 3);
  EXPECT_EQ(qkv.count, 3u * 8 * 16);
  for (int part = 0; part < 3; ++part) {
    const ParameterSpec& rows = block.parameters[static_cast<std::size_t>(qkv.first + part)];
    EXPECT_EQ(rows.name, "h.0.attn.c_attn.weight");
    EXPECT_EQ(rows.box, (Box{.offset = {16 * part + 8, 0}, .extent = {8, 16}}));
  }
}

}  // namespace
}  // namespace sprat::train
