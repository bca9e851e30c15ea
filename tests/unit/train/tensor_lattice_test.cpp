// A model whose layers are cut among tensor ranks trains with the bits of one that is not, alone
// and with stages, shards and whatever else spreads a model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/train/cut_jobs.hpp"

namespace sprat::train {
namespace {

using testing::HasSubstr;
using testing::Not;

class TensorLattice : public CutJobs {
 protected:
  /// Losses and norms, with the product whose bits do not depend on the degree.
  std::vector<std::string> bits(int ranks, const std::string& parallel, int steps = 3,
                                bool resume = false) {
    return losses({.ranks = ranks,
                   .parallel = R"("microbatches": 4)" + (parallel.empty() ? "" : ", " + parallel),
                   .train = R"(, "gemm": "reference")",
                   .steps = steps,
                   .resume = resume,
                   .heads = 4});
  }
};

std::string tensor_keys(int degree, const char* optimize) {
  return R"("tensor_parallel_degree": )" + std::to_string(degree) + R"(, "optimize": ")" +
         optimize + '"';
}

const std::string own_samples = R"(, "prescaled_batch": false)";

TEST_F(TensorLattice, every_degree_gives_the_bits_of_a_model_that_is_not_cut) {
  const auto whole = bits(1, "");
  ASSERT_EQ(whole.size(), 4u);
  for (const char* optimize : {"memory", "speed"}) {
    for (const int degree : {2, 4}) {
      EXPECT_EQ(bits(degree, tensor_keys(degree, optimize)), whole) << degree << ' ' << optimize;
    }
  }
}

TEST_F(TensorLattice, stages_and_shards_change_no_bit) {
  const auto whole = bits(1, ""), two = bits(2, "");
  const std::string stages = R"(, "pipeline_parallel_degree": 2)";
  for (const char* optimize : {"memory", "speed"}) {
    const std::string keys = tensor_keys(2, optimize);
    EXPECT_EQ(bits(4, keys + stages), whole) << optimize;
    EXPECT_EQ(bits(4, keys + stages + R"(, "pipeline": "zero_bubble_h1")"), whole) << optimize;
    EXPECT_EQ(bits(4, keys + R"(, "hybrid_shard_degree": 2)"), two) << optimize;
    EXPECT_EQ(bits(8, keys + stages +
                          R"(, "hybrid_shard_degree": 2, "activation_checkpointing": "each",
                             "offload_activations": true)"),
              two)
        << optimize;
  }
}

// Each micro-batch of a group has the samples that it has where all of its ranks read all of them.
TEST_F(TensorLattice, ranks_that_read_their_own_samples_change_no_bit) {
  const auto whole = bits(1, "");
  for (const char* optimize : {"memory", "speed"}) {
    for (const int degree : {2, 4}) {
      EXPECT_EQ(bits(degree, tensor_keys(degree, optimize) + own_samples), whole)
          << degree << ' ' << optimize;
    }
    const std::string two = tensor_keys(2, optimize) + own_samples;
    EXPECT_EQ(bits(4, two + R"(, "pipeline_parallel_degree": 2, "pipeline": "zero_bubble_h1")"),
              whole)
        << optimize;
  }
}

TEST_F(TensorLattice, own_samples_go_with_shards_stages_recomputation_and_offload) {
  const auto two = bits(2, "");
  for (const char* optimize : {"memory", "speed"}) {
    const std::string keys =
        tensor_keys(2, optimize) + own_samples + R"(, "hybrid_shard_degree": 2)";
    EXPECT_EQ(bits(4, keys), two) << optimize;
    EXPECT_EQ(bits(8, keys + R"(, "pipeline_parallel_degree": 2, "placement_strategy": "TPD",
                                  "activation_checkpointing": "each",
                                  "offload_activations": true)"),
              two)
        << optimize;
  }
}

TEST_F(TensorLattice, who_reads_what_may_change_between_a_save_and_its_resumption) {
  const auto whole = bits(2, "");
  bits(4, tensor_keys(2, "memory") + own_samples, 2);
  EXPECT_EQ(bits(4, tensor_keys(2, "speed"), 3, true), whole);
  EXPECT_THAT(output_, Not(HasSubstr("in the checkpoint"))) << "a difference that was noted";
}

TEST_F(TensorLattice, ranks_may_be_placed_in_any_order) {
  const auto two = bits(2, "");
  for (const char* placement : {"spread", "PTD", "TDP"}) {
    EXPECT_EQ(bits(8, tensor_keys(2, "memory") +
                          R"(, "pipeline_parallel_degree": 2, "placement_strategy": ")" +
                          placement + '"'),
              two)
        << placement;
  }
}

TEST_F(TensorLattice, what_one_cut_has_saved_another_goes_on_with) {
  const auto whole = bits(2, "");
  bits(4, tensor_keys(2, "memory"), 2);
  EXPECT_EQ(bits(2, "", 3, true), whole);
  bits(2, "", 2);
  EXPECT_EQ(bits(8, tensor_keys(4, "speed"), 3, true), whole);
}

/// A rate that changes no parameter whose value matters, so that all jobs validate one model,
/// though gradients of other numbers of data ranks have other bits.
TEST_F(TensorLattice, validation_has_the_bits_of_one_rank_whoever_has_which_samples) {
  const auto validation = [&](int ranks, const std::string& parallel = "") {
    losses({.ranks = ranks,
            .parallel = R"("microbatches": 2)" + parallel,
            .train = R"(, "batch": 24, "gemm": "reference")",
            .rate = "1e-30",
            .held_out = 0.5,  // so many samples that other orders have other bits
            .steps = 1,
            .heads = 4});
    return record_.at("validation_loss").get<double>();
  };
  const double whole = validation(1);
  EXPECT_GT(whole, 0);
  // Of 12 samples at once on one rank they have 6, 4 and 3, and the last ranks of the last none.
  for (const int ranks : {2, 3, 4}) {
    EXPECT_EQ(validation(ranks), whole) << ranks << " data ranks";
  }
  const std::string cut = ", " + tensor_keys(2, "memory") + R"(, "pipeline_parallel_degree": 2)";
  EXPECT_EQ(validation(8, cut + R"(, "hybrid_shard_degree": 2)"), whole);
}

TEST_F(TensorLattice, says_how_layers_are_cut) {
  bits(2, tensor_keys(2, "speed"), 1);
  EXPECT_THAT(output_, HasSubstr("layers are cut among 2 ranks, optimize \"speed\"\n"));
}

}  // namespace
}  // namespace sprat::train
