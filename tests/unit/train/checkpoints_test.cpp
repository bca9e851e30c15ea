// What a run that resumes is warned of.
#include "train/checkpoints.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace sprat::train {
namespace {

/// A run that is split in one way, and how its checkpoint notes that.
struct SplitRun {
  int ranks, micro_steps;
  GradientOrder order = GradientOrder::tree;
  DType wire = DType::f32;
  int context = 1;
  std::string way = "p2p";
};

std::map<std::string, std::string> notes_of(const SplitRun& run) {
  TrainConfig config;
  config.sharding.micro_steps = run.micro_steps;
  config.sharding.gradient_order = run.order;
  config.sharding.gradient_wire = run.wire;
  config.sharding.accumulate = Accumulate::local;
  config.pipeline.context_degree = run.context;
  config.pipeline.cp_comm_type = run.way;
  return run_notes(config, {.data_ranks = run.ranks,
                            .row = "ddp, degree 1",
                            .data = {{"bytes of text", "100"}, {"data.tokenizer", "bytes"}},
                            .gemm = "reference"});
}

/// What the warnings begin with: the notes' names.
std::vector<std::string> warned_of(const SplitRun& saved, const SplitRun& mine) {
  std::vector<std::string> names;
  for (const std::string& warning : resume_warnings(notes_of(saved), notes_of(mine))) {
    names.push_back(warning.substr(0, warning.find(" is ")));
  }
  return names;
}

TEST(RunNotes, ranks_and_micro_steps_of_a_tree_matter_by_their_product_alone) {
  using Names = std::vector<std::string>;
  const SplitRun saved{.ranks = 4, .micro_steps = 2};
  EXPECT_EQ(warned_of(saved, saved), Names{});
  EXPECT_EQ(warned_of(saved, {.ranks = 1, .micro_steps = 8}), Names{});
  EXPECT_EQ(warned_of(saved, {.ranks = 8, .micro_steps = 1}), Names{});
  EXPECT_EQ(warned_of(saved, {.ranks = 4, .micro_steps = 4}), Names{"micro-steps of all ranks"});
}

TEST(RunNotes, ranks_and_micro_steps_matter_each_where_bits_depend_on_them) {
  using Names = std::vector<std::string>;
  const Names both{"data ranks", "train.micro_steps"};
  for (const auto& [order, wire] : {std::pair{GradientOrder::sequence, DType::f32},
                                    std::pair{GradientOrder::tree, DType::bf16}}) {
    EXPECT_EQ(warned_of({4, 4, order, wire}, {8, 2, order, wire}), both) << name(order);
  }
  EXPECT_EQ(warned_of({.ranks = 4, .micro_steps = 3}, {.ranks = 2, .micro_steps = 6}), both);
  EXPECT_EQ(warned_of({.ranks = 2, .micro_steps = 3}, {.ranks = 2, .micro_steps = 4}),
            Names{"train.micro_steps"});
}

/// A run whose blocks of 8 bits lose something, which is kept or not.
std::map<std::string, std::string> notes_of_blocks(bool error_feedback) {
  TrainConfig config;
  config.sharding.gradient_wire = DType::i8;
  config.sharding.error_feedback = error_feedback;
  return run_notes(config, {.data_ranks = 2,
                            .row = "ddp, degree 1",
                            .data = {{"bytes of text", "100"}, {"data.tokenizer", "bytes"}},
                            .gemm = "reference"});
}

TEST(RunNotes, what_error_feedback_kept_is_missed) {
  EXPECT_TRUE(resume_warnings({}, notes_of_blocks(true)).empty()) << "nothing was resumed";
  EXPECT_TRUE(resume_warnings(notes_of_blocks(false), notes_of_blocks(false)).empty());
  const auto warnings = resume_warnings(notes_of_blocks(true), notes_of_blocks(true));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(
      warnings[0].starts_with("train.precision.error_feedback is true, and what it kept is "
                              "in no checkpoint"))
      << warnings[0];
  EXPECT_EQ(resume_warnings(notes_of_blocks(true), notes_of_blocks(false)).size(), 1u)
      << "another value is one difference";
}

TEST(RunNotes, how_sequences_are_cut_matters) {
  using Names = std::vector<std::string>;
  const SplitRun whole{.ranks = 2, .micro_steps = 1};
  const SplitRun cut{.ranks = 2, .micro_steps = 1, .context = 2};
  const SplitRun gathered{.ranks = 2, .micro_steps = 1, .context = 2, .way = "all_gather"};
  EXPECT_EQ(warned_of(cut, cut), Names{});
  EXPECT_EQ(warned_of(whole, cut), Names{"parallel.context_parallel_degree"});
  EXPECT_EQ(warned_of(cut, gathered), Names{"parallel.cp_comm_type"});
  // A tree over ranks that share sequences is another at any other number of ranks.
  EXPECT_EQ(warned_of({.ranks = 4, .micro_steps = 2, .context = 2},
                      {.ranks = 2, .micro_steps = 4, .context = 2}),
            (Names{"data ranks", "train.micro_steps"}));
}

TEST(RunNotes, the_order_matters_where_there_are_several_micro_steps) {
  const SplitRun one{.ranks = 4, .micro_steps = 1, .order = GradientOrder::sequence};
  EXPECT_TRUE(warned_of(one, {.ranks = 4, .micro_steps = 1}).empty());
  EXPECT_EQ(warned_of({.ranks = 4, .micro_steps = 2, .order = GradientOrder::sequence},
                      {.ranks = 4, .micro_steps = 2}),
            std::vector<std::string>{"parallel.gradient_order"});
}

}  // namespace
}  // namespace sprat::train
