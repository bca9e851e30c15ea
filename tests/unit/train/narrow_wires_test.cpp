// Training whose gradients travel as blocks of codes, with tensors, stages and data cut: what is
// not finite, what is nothing but zeros, and the bytes that a step takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/plan/layout.hpp"
#include "fsdp/plan/placement.hpp"
#include "sprat/checkpoint.hpp"
#include "sprat/wire.hpp"
#include "tests/unit/checkpoint/saved_values.hpp"
#include "tests/unit/train/cut_jobs.hpp"
#include "train/data/batches.hpp"
#include "train/model/gpt.hpp"
#include "train/model_part.hpp"
#include "train/model_passes.hpp"

namespace sprat::train {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr const char* tensors_and_stages = R"("tensor_parallel_degree": 2,
    "pipeline_parallel_degree": 2, "hybrid_shard_degree": 2)";

/// The wire is the parameter.
class NarrowWires : public CutJobs, public testing::WithParamInterface<const char*> {
 protected:
  /// All elements of parameters whose name begins so.
  struct Change {
    std::string begin;
    float value = 0;
  };

  /// A checkpoint of the initial parameters but for some.
  std::string start_with(const std::vector<Change>& changes) const {
    std::vector<UnitSpec> units =
        gpt_units({.layers = 3, .width = 16, .heads = 4, .context = 8, .vocabulary = 256}, 1, {});
    for (UnitSpec& unit : units) {
      for (ParameterSpec& parameter : unit.parameters) {
        for (const Change& change : changes) {
          if (parameter.name.starts_with(change.begin)) {
            parameter.initial = [value = change.value](std::uint64_t) { return value; };
          }
        }
      }
    }
    const std::string path = folder_ / "start";
    std::filesystem::remove_all(path);
    run_virtual_ranks(1, Config{}, [&](Communicator& world) {
      ShardedModel model(world, units, {});
      CheckpointWriter writer(model, {.folder = path, .asynchronous = false});
      writer.save({});
      writer.wait();
    });
    return path;
  }

  /// T 2 x P 2 x S 2. `precision`: further keys of it.
  CutJob job(const std::string& precision, const std::string& train) const {
    return {.ranks = 8,
            .parallel = std::string(tensors_and_stages) + R"(, "microbatches": 2)",
            .train = R"(, "gemm": "reference", "precision": {"gradient_wire": ")" +
                     std::string(GetParam()) + "\"" + precision + "}" + train,
            .heads = 4};
  }
};

TEST_P(NarrowWires, what_overflows_is_skipped_until_the_loss_scale_fits_and_changes_nothing) {
  // Every sample is like every other, so a step has the same gradient however many came before. The
  // one token is what such a gain makes the least likely; its row of the table gets the gradient.
  std::ofstream(folder_ / "text.txt") << std::string(2000, 'a');
  const std::string start = start_with({{"ln_f.weight", -0x1p66f}});
  const auto begin_at = [&](double scale) {
    CutJob scaled = job(R"(, "error_feedback": true, "loss_scale": {"hysteresis": 1, "initial": )" +
                            std::to_string(scale) + "}",
                        "");
    scaled.steps = 10;
    scaled.start = start;
    auto lines = losses(scaled);
    lines.pop_back();  // what is validated comes after more updates, or fewer
    return lines;
  };
  const auto skipping = begin_at(0x1p64);
  std::size_t skipped = 0;
  for (; skipped < records_.size() && records_[skipped].contains("skipped"); ++skipped) {
    EXPECT_TRUE(records_[skipped].at("grad_norm").is_null()) << records_[skipped];
    EXPECT_EQ(records_[skipped].at("loss_scale"), std::ldexp(0x1p64, -static_cast<int>(skipped)));
  }
  ASSERT_GE(skipped, 1u);
  ASSERT_LE(skipped, 7u);
  EXPECT_THAT(output_, HasSubstr("step 1: gradients overflow, nothing was changed; the loss scale "
                                 "is now 9.223372036854776e+18\n"));
  const auto straight = begin_at(records_[skipped].at("loss_scale"));
  EXPECT_FALSE(records_[0].contains("skipped"));
  const auto same = static_cast<std::ptrdiff_t>(skipping.size() - skipped);
  EXPECT_EQ(std::vector(skipping.end() - same, skipping.end()),
            std::vector(straight.begin(), straight.begin() + same));
}

TEST_P(NarrowWires, what_ranks_have_alike_stays_alike) {
  // Saving compares norms of tensor ranks, and the tables of the first and the last stage.
  CutJob narrow =
      job(std::string(R"(, "error_feedback": true, "parameter_wire": ")") + GetParam() + "\"", "");
  for (const char* optimize : {"memory", "speed"}) {
    CutJob with = narrow;
    with.parallel += std::string(R"(, "optimize": ")") + optimize + "\"";
    losses(with);
    EXPECT_EQ(records_.size(), 3u);
    EXPECT_LT(record_.at("loss"), records_[0].at("loss"));
    EXPECT_TRUE(latest_checkpoint((folder_ / "saved").string()).has_value());
  }
}

TEST_P(NarrowWires, what_is_no_number_is_told_and_ends_the_run) {
  for (const float odd : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    CutJob broken = job("", R"(, "max_skipped_steps": 2)");
    broken.start = start_with({{"h.1.ln_1.bias", odd}});
    testing::internal::CaptureStderr();
    losses(broken);
    const std::string errors = testing::internal::GetCapturedStderr();
    EXPECT_EQ(code_, 1) << odd;
    ASSERT_EQ(records_.size(), 2u) << odd;
    EXPECT_TRUE(records_[0].at("skipped")) << records_[0];
    EXPECT_THAT(output_, HasSubstr("step 1: the gradient is not finite, so nothing was changed; "
                                   "lower train.learning_rate\n"));
    EXPECT_THAT(
        errors,
        HasSubstr("after step 2: 2 steps in a row were skipped because their gradients were "
                  "not finite: the run has diverged (train.max_skipped_steps). Nothing is "
                  "saved; lower train.learning_rate"));
  }
}

TEST_P(NarrowWires, blocks_of_zeros_change_nothing) {
  // With such a norm before the head no gradient reaches anything but that norm.
  CutJob zeros = job("", R"(, "optimizer": {"name": "adamw", "weight_decay": 0})");
  zeros.start = start_with({{"ln_f.", 0}});
  zeros.steps = 1;
  losses(zeros);
  EXPECT_GT(records_[0].at("grad_norm"), 0);
  const auto before = fsdp::saved_values(zeros.start).tensors;
  const auto after = fsdp::saved_values(folder_ / "saved").tensors;
  for (const auto& [name, values] : before) {
    if (name.starts_with("optimizer.")) {
      continue;
    }
    const auto& mean = after.at("optimizer.exp_avg." + name);
    if (name == "ln_f.bias") {
      EXPECT_NE(after.at(name), values) << "nothing was trained";
    } else if (!name.starts_with("ln_f.")) {
      EXPECT_EQ(after.at(name), values) << name;
      EXPECT_THAT(mean, Each(0.0f)) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, NarrowWires, testing::Values("i8", "f8e4m3", "f8e5m2"),
                         [](const auto& wire) { return std::string(wire.param); });

/// What `ranks` data ranks send together of these units' gradients in one micro-step: before the
/// last sum f32, there blocks, and where all end with the sum, it too.
std::uint64_t bytes_of_sums(const std::vector<UnitSpec>& units, int ranks,
                            const FsdpOptions& options) {
  const fsdp::Sharding sharding =
      fsdp::choose_sharding(ranks, options.strategy, options.hybrid_shard_degree);
  const std::vector<fsdp::Hop> hops = fsdp::reduction_hops(sharding, options.gradient_wire);
  const auto shards = static_cast<std::uint64_t>(sharding.shards);
  const auto others = static_cast<std::uint64_t>(sharding.size(hops.back().axis)) - 1;
  std::uint64_t bytes = 0;
  for (const UnitSpec& unit : units) {
    const std::uint64_t padded =
        fsdp::lay_out(unit, fsdp::optimizer_part(sharding, 0).parts).padded;
    bytes += others * encoded_bytes(padded) * (hops.back().scatters ? 1 : 2);
    if (hops.size() > 1) {
      bytes += static_cast<std::uint64_t>(ranks) * padded * (shards - 1) / shards * sizeof(float);
    }
  }
  return bytes;
}

struct SentBytes {
  std::uint64_t gradients = 0, formula = 0;
};

/// Of one step of eight ranks.
SentBytes sent_by_a_step(const std::string& parallel, const std::string& wire) {
  const TrainConfig config = parse_train_config(
      R"({"model": {"layers": 3, "width": 16, "heads": 4, "context": 8}, "data": {"files": ["a"]},
          "train": {"batch": 16, "precision": {"gradient_wire": ")" +
          wire + R"("}}, "parallel": {)" + parallel + "}}",
      "test.json");
  std::atomic<std::uint64_t> gradients = 0, formula = 0;
  Config limited;
  limited.timeout = std::chrono::seconds(60);
  run_virtual_ranks(8, limited, [&](Communicator& world) {
    ModelPart part(world, config);
    const Batches batches(TokenizedText(std::vector<std::uint8_t>(2000, 'a')), config);
    ModelPasses passes(part, config, open_gemm_backend("reference"),
                       batches.cut().largest_share(part.share().ranks));
    const std::vector<Batch> of_step = {batches.training(0, 0, part.share())};
    passes.train(of_step, 1.0f);
    part.step(0.01f, 1);
    gradients += part.model().traffic().gradients;
    if (part.share().rank == 0) {
      formula += bytes_of_sums(part.units(), part.share().ranks, part.mine().sharding);
    }
  });
  return {gradients, formula};
}

TEST(NarrowWireBytes, of_a_step_are_those_of_the_formula_however_the_model_is_cut) {
  for (const char* parallel :
       {R"("strategy": "zero3")", R"("tensor_parallel_degree": 2, "strategy": "ddp")",
        R"("tensor_parallel_degree": 2, "strategy": "zero1")",
        R"("tensor_parallel_degree": 2, "hybrid_shard_degree": 2)",
        R"("tensor_parallel_degree": 2, "strategy": "hfsdp", "hybrid_shard_degree": 2)",
        R"("tensor_parallel_degree": 2, "pipeline_parallel_degree": 2, "strategy": "zero3")",
        R"("tensor_parallel_degree": 2, "pipeline_parallel_degree": 2, "strategy": "ddp")"}) {
    for (const char* wire : {"i8", "f8e4m3", "f8e5m2"}) {
      const SentBytes sent = sent_by_a_step(parallel, wire);
      EXPECT_EQ(sent.gradients, sent.formula) << wire << ": " << parallel;
      EXPECT_GT(sent.formula, 0u);
    }
  }
}

}  // namespace
}  // namespace sprat::train
