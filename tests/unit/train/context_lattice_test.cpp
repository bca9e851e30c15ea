// Runs whose sequences are cut among ranks: with the losses of one rank within a bound that is
// derived, and with the same bits however else the model is spread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/unit/layers/roundings.hpp"
#include "tests/unit/sanitized.hpp"
#include "tests/unit/train/cut_jobs.hpp"

namespace sprat::train::context_lattice_test {
namespace {

using testing::HasSubstr;

constexpr int context = 512, batch = 4, steps = 4;
constexpr double rate = 0.01;  // CutJobs'
const std::vector<std::string> ways = {"p2p", "all_gather"};

std::string context_keys(int degree, const std::string& way) {
  return R"("context_parallel_degree": )" + std::to_string(degree) + R"(, "cp_comm_type": ")" +
         way + '"';
}

class ContextLattice : public CutJobs {
 protected:
  /// Held out is more than a sequence.
  ContextLattice() {
    std::ofstream text(folder_ / "text.txt");
    for (int line = 0; line < 800; ++line) {
      text << "line " << line << " of a text that repeats itself.\n";
    }
  }

  /// Of descent by the gradient alone, whose roundings can be followed.
  CutJob job(int ranks, const std::string& parallel, int microbatches = 1) const {
    return {.ranks = ranks,
            .parallel = R"("microbatches": )" + std::to_string(microbatches) +
                        (parallel.empty() ? "" : ", " + parallel),
            .train = R"(, "gemm": "reference", "batch": 4, "clip_norm": 0, "schedule": "linear",
                        "final_learning_rate": 0.01, "warmup_steps": 0,
                        "optimizer": {"name": "sgd", "momentum": 0})",
            .steps = steps,
            .context = context};
  }
  std::vector<std::string> bits(int ranks, const std::string& parallel, int microbatches = 1) {
    return losses(job(ranks, parallel, microbatches));
  }
  struct Step {
    double loss, norm;
  };
  std::vector<Step> steps_of(const CutJob& job) {
    losses(job);
    std::vector<Step> all;
    for (const nlohmann::json& record : records_) {
      all.push_back({std::strtod(record.at("loss_hex").get<std::string>().c_str(), nullptr),
                     record.at("grad_norm").get<double>()});
    }
    EXPECT_EQ(all.size(), static_cast<std::size_t>(steps));
    return all;
  }
};

/// As docs/numerics.md has it: each product and the attention of three blocks forward and backward,
/// the head, the sum over rows of a gradient of weights.
double gradient_roundings() {
  constexpr int width = 16, head_width = 8, blocks = 3, vocabulary = 256;
  constexpr int block = head_width + 2 * context + 4 * width + 4 * width;
  return 2 * layers_test::gamma(2 * (blocks * block + vocabulary) + batch * context);
}

// Parameters are the same before the first step, and the forward has the same bits; only the f64
// losses of tokens are added in another order. A gradient g_j may be another by
// gradient_roundings() of its norm. So before step k parameters are apart by at most the sum over j
// < k of rate times that, and to first order the loss by as much times the norm of g_k.
TEST_F(ContextLattice, losses_are_those_of_one_rank_within_the_roundings_of_gradients) {
  const auto one = steps_of(job(1, ""));
  EXPECT_LT(one.back().loss, one.front().loss);
  for (const int degree : {2, 4}) {
    for (const std::string& way : part_if_sanitized(ways, 2, 1)) {
      const auto cut = steps_of(job(degree, context_keys(degree, way)));
      double apart = 0;
      for (std::size_t step = 0; step < one.size(); ++step) {
        const double sums = 2 * batch * context * 0x1p-53 * one[step].loss;
        EXPECT_NEAR(cut[step].loss, one[step].loss, sums + apart * one[step].norm)
            << degree << ' ' << way << ", step " << step + 1;
        apart += rate * gradient_roundings() * one[step].norm;
      }
    }
  }
}

TEST_F(ContextLattice, stages_tensor_ranks_and_activations_change_no_bit) {
  for (const std::string& way : part_if_sanitized(ways, 2)) {
    const std::string keys = context_keys(2, way);
    const auto plain = bits(2, keys, 2);
    const std::string stages = R"(, "pipeline_parallel_degree": 2)";
    const std::string anew = R"(, "activation_checkpointing": "each")";
    const std::string offload =
        R"(, "offload_activations": true, "activation_keep_last": 0, "activation_tier": "file:.")";
    EXPECT_EQ(bits(2, keys + anew, 2), plain) << way;
    EXPECT_EQ(bits(2, keys + offload, 2), plain) << way;
    EXPECT_EQ(bits(4, keys + stages, 2), plain) << way;
    EXPECT_EQ(bits(4, keys + stages + R"(, "pipeline": "zero_bubble_h1")" + anew + offload, 2),
              plain)
        << way;
    for (const char* optimize : {"memory", "speed"}) {
      const std::string tensor =
          std::string(R"(, "tensor_parallel_degree": 2, "optimize": ")") + optimize + '"';
      EXPECT_EQ(bits(4, keys + tensor, 2), plain) << way << ' ' << optimize;
      EXPECT_EQ(bits(4, keys + tensor + R"(, "prescaled_batch": false)", 2), plain)
          << way << ' ' << optimize;
    }
    EXPECT_EQ(bits(8, keys + stages + R"(, "tensor_parallel_degree": 2)" + anew, 2), plain) << way;
  }
}

TEST_F(ContextLattice, rows_and_placements_change_no_bit) {
  // Two shares of samples, each of two ranks.
  const std::string keys = context_keys(2, "p2p");
  const auto plain = bits(4, keys);
  for (const char* more :
       {R"(, "hybrid_shard_degree": 2)", R"(, "strategy": "zero1")",
        R"(, "strategy": "hfsdp", "hybrid_shard_degree": 2)", R"(, "persistence_threshold": 100)",
        R"(, "state_tier": "file:.", "shard_tier": "file:.")"}) {
    EXPECT_EQ(bits(4, keys + more), plain) << more;
  }
  for (const char* placement : {"spread", "PTD"}) {
    EXPECT_EQ(bits(8, keys + R"(, "pipeline_parallel_degree": 2, "placement_strategy": ")" +
                          placement + '"'),
              plain)
        << placement;
  }
}

// In bf16 and with a tree, where the batch does not divide and Adam amplifies what it likes.
TEST_F(ContextLattice, every_form_has_the_same_bits_every_time_and_the_first_loss_of_one_rank) {
  struct Form {
    const char* parallel;
    const char* train;
  };
  const std::vector<Form> forms = {
      {R"("gradient_order": "tree")", ""},
      {R"("reductions_in_flight": 2)", R"(, "accumulate": "local")"},
      {R"("prefetch_units": 2)",
       R"(, "precision": {"parameters": "bf16", "gradient_wire": "bf16",
            "stochastic_rounding": true})"},
      {R"("prefetch_units": 0)", R"(, "precision": {"parameters": "f16"})"},
  };
  for (const Form& form : part_if_sanitized(forms, 2)) {
    const auto& [parallel, train] = form;
    const auto run = [&](int ranks, const std::string& more) {
      losses({.ranks = ranks,
              .parallel = R"("microbatches": 2, )" + std::string(parallel) + more,
              .train = std::string(R"(, "gemm": "reference", "batch": 9)") + train,
              .steps = 2,
              .context = context});
      return records_;
    };
    const auto cut = run(4, ", " + context_keys(2, "all_gather"));
    const auto again = run(4, ", " + context_keys(2, "all_gather"));
    ASSERT_EQ(cut.size(), 2u);
    for (std::size_t step = 0; step < cut.size(); ++step) {
      EXPECT_EQ(cut[step].at("loss_hex"), again[step].at("loss_hex")) << parallel;
      EXPECT_EQ(cut[step].at("grad_norm"), again[step].at("grad_norm")) << parallel;
    }
    const double one = run(2, "")[0].at("loss");
    EXPECT_NEAR(cut[0].at("loss").get<double>(), one, 2 * 9 * context * 0x1p-53 * one) << parallel;
  }
}

TEST_F(ContextLattice, what_one_cut_has_saved_another_goes_on_with) {
  const auto resumed = [&](int ranks, const std::string& first, const std::string& then) {
    CutJob before = job(ranks, first);
    before.steps = 2;
    losses(before);
    CutJob after = job(ranks, then);
    after.resume = true;
    const auto lines = losses(after);
    return std::vector(lines.end() - (steps - 2) - 1, lines.end());
  };
  const std::string cut = context_keys(2, "p2p"), more = context_keys(4, "all_gather");
  const auto whole = bits(4, cut);
  EXPECT_EQ(resumed(4, cut, cut), std::vector(whole.begin() + 2, whole.end()));
  EXPECT_EQ(output_.find("warning: parallel.context_parallel_degree"), output_.npos);
  // Of the parameters that the other cut has saved, so the first loss is within its sums.
  const std::string uncut = R"("context_parallel_degree": 1)";
  for (const auto& [first, then] : {std::pair{uncut, cut}, {cut, uncut}, {cut, more}}) {
    const double expected = std::strtod(resumed(4, first, first)[0].c_str(), nullptr);
    EXPECT_NEAR(std::strtod(resumed(4, first, then)[0].c_str(), nullptr), expected,
                2 * batch * context * 0x1p-53 * expected)
        << first << " then " << then;
    EXPECT_THAT(output_, HasSubstr("warning: parallel.context_parallel_degree is "));
  }
}

TEST_F(ContextLattice, says_how_sequences_are_cut) {
  bits(2, context_keys(2, "all_gather"));
  EXPECT_THAT(output_, HasSubstr("sequences are cut among 2 ranks, cp_comm_type \"all_gather\"\n"));
}

TEST_F(ContextLattice, ends_with_a_sentence_where_sequences_cannot_be_cut) {
  try {
    bits(3, context_keys(3, "p2p"));
    ADD_FAILURE() << "trained";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the nearest length that is, is 510"));
  }
}

}  // namespace
}  // namespace sprat::train::context_lattice_test
