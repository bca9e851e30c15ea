// Training that goes on from a checkpoint with its tensors cut otherwise has the bits of training
// that never stopped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sprat/checkpoint.hpp"
#include "tests/unit/checkpoint/saved_values.hpp"
#include "tests/unit/fsdp/cut_model.hpp"
#include "tests/unit/io/temporary_folder.hpp"

namespace sprat::fsdp::cut_training_test {
namespace {

/// Steps `first` to `last`, from the checkpoint in `folder` if that is not the first of all. Each
/// is saved there.
void train_on(const CutJob& job, const std::string& folder, int first, int last) {
  run_virtual_ranks(job.ranks(), Config{}, [&](Communicator& world) {
    CutPart part(world, job);
    if (first > 0) {
      EXPECT_EQ(load_checkpoint(world, part.model(), folder).step, first);
      EXPECT_EQ(part.model().updates(), first);
    }
    CheckpointWriter writer(world, part.model(), {.folder = folder, .keep_last = 100});
    for (int step = first; step < last; ++step) {
      part.train(step);
      writer.save({.step = step + 1});
    }
    writer.wait();
  });
}

/// Each step under another cut. Two data ranks throughout, for bits depend on their number.
std::vector<CutJob> chain_of(const FsdpOptions& options) {
  std::vector<CutJob> jobs = {{.tensor_ranks = 2, .cut = Cut::rows},
                              {.tensor_ranks = 2, .cut = Cut::columns},
                              {.tensor_ranks = 1},
                              {.tensor_ranks = 4, .cut = Cut::rows},
                              {.tensor_ranks = 4, .cut = Cut::grid},
                              {.tensor_ranks = 2, .cut = Cut::thirds},
                              {.tensor_ranks = 3, .cut = Cut::columns}};
  for (std::size_t at = 0; at < jobs.size(); ++at) {
    jobs[at].data_ranks = 2;
    jobs[at].options = options;
    jobs[at].options.strategy = at % 2 == 0 ? "hsdp" : "zero2";
    jobs[at].options.hybrid_shard_degree = at % 2 == 0 ? 1 + static_cast<int>(at / 2) % 2 : 0;
  }
  return jobs;
}

TEST(CutTraining, goes_on_from_rows_to_columns_to_whole_ones_with_the_bits_of_never_stopping) {
  FsdpOptions rounded{.persistence_threshold = 800};
  rounded.parameter_dtype = DType::bf16;
  rounded.stochastic_rounding = true;
  for (const FsdpOptions& options : {FsdpOptions{}, rounded}) {
    const TemporaryFolder whole, cut;
    const std::vector<CutJob> jobs = chain_of(options);
    CutJob plain{.data_ranks = 2, .options = options};
    plain.options.strategy = "zero3";
    train_on(plain, whole.path(), 0, static_cast<int>(jobs.size()));
    for (int step = 0; step < static_cast<int>(jobs.size()); ++step) {
      const CutJob& job = jobs[static_cast<std::size_t>(step)];
      train_on(job, cut.path(), step, step + 1);
      const std::string name = "step-0000000" + std::to_string(step + 1);
      const SavedValues expected = saved_values(whole / name);
      ASSERT_EQ(expected.tensors.size(), 3 * 7u);
      EXPECT_EQ(saved_values(cut / name), expected) << "step " << step << ": " << job.text();
    }
  }
}

TEST(CutTraining, says_its_degrees) {
  const TemporaryFolder folder;
  train_on({.data_ranks = 2, .tensor_ranks = 4}, folder.path(), 0, 1);
  auto config = describe_checkpoint(folder.path()).config;
  EXPECT_EQ(config["tensor_parallel_degree"], "4");
  EXPECT_FALSE(config.contains("pipeline_parallel_degree"));
}

}  // namespace
}  // namespace sprat::fsdp::cut_training_test
