// Tensor ranks that read samples of their own have together what each would have read.
#include "train/data/gathered_batches.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "sprat/communicator.hpp"

namespace sprat::train {
namespace {

constexpr int length = 8, samples_held_out = 7;

Batches small_batches() {
  TrainConfig config;
  config.model.context = length;
  config.train.batch = 8;
  config.sharding.micro_steps = 2;
  config.data.validation_share = 0.25;
  std::vector<std::uint8_t> text(2000);
  for (std::size_t i = 0; i < text.size(); ++i) {
    text[i] = static_cast<std::uint8_t>(i % 251);
  }
  return {TokenizedText(std::move(text)), config};
}

/// Both micro-batches of a step, or of a validation from its third batch on: the first has three
/// samples, which do not divide, and behind it there are none.
std::vector<Batch> read(const Batches& batches, bool learns, const BatchShare& share) {
  std::vector<Batch> read;
  for (const int index : {0, 1}) {
    read.push_back(learns ? batches.training(16, index, share)
                          : batches.validation(1 + index, samples_held_out, share));
  }
  return read;
}

TEST(GatheredBatches, are_those_that_each_rank_would_have_read) {
  const Batches batches = small_batches();
  for (const bool learns : {true, false}) {
    const std::vector<Batch> expected = read(batches, learns, {});
    ASSERT_EQ(expected[0].samples, learns ? 4 : 3);
    ASSERT_EQ(expected[1].samples, learns ? 4 : 0);
    for (const int degree : {1, 2, 4}) {
      run_virtual_ranks(degree, Config{}, [&](Communicator& ranks) {
        SCOPED_TRACE(std::to_string(degree) + " ranks, rank " + std::to_string(ranks.rank()));
        tensor::Group group(ranks, {.degree = degree});
        const BatchShare share{.part = ranks.rank(), .parts = degree};
        const std::vector<Batch> gathered =
            gather_batches(group, share, length, read(batches, learns, share));
        ASSERT_EQ(gathered.size(), expected.size());
        for (std::size_t i = 0; i < expected.size(); ++i) {
          EXPECT_EQ(gathered[i].inputs, expected[i].inputs) << i;
          EXPECT_EQ(gathered[i].targets, expected[i].targets) << i;
        }
        // Inputs and targets, once each; no rank sends anything to itself.
        const std::uint64_t bytes = (learns ? 8u : 3u) * length * 2 * sizeof(std::int32_t);
        EXPECT_EQ(group.traffic(), (tensor::Traffic{.gathered = degree == 1 ? 0 : bytes}));
      });
    }
  }
}

TEST(GatheredBatches, of_nobody_need_no_message) {
  const Batches batches = small_batches();
  run_virtual_ranks(2, Config{}, [&](Communicator& ranks) {
    tensor::Group group(ranks, {.degree = 2});
    const BatchShare share{.part = ranks.rank(), .parts = 2};
    const auto gathered =
        gather_batches(group, share, length, {batches.validation(2, samples_held_out, share)});
    ASSERT_EQ(gathered.size(), 1u);
    EXPECT_TRUE(gathered[0].inputs.empty());
    EXPECT_EQ(group.traffic(), tensor::Traffic{});
  });
}

/// Of a group whose ranks read as many samples each, which a plan asks for.
TEST(GatheredBatches, are_dealt_by_rows_as_they_were_read) {
  constexpr int samples = 8;
  for (const int degree : {2, 4, 8}) {
    for (int rank = 0; rank < degree; ++rank) {
      const SampleRange read = part_of_batch(samples, degree, rank);
      EXPECT_EQ(tensor::part_of(samples * length, degree, rank),
                (tensor::Part{.first = read.first * length, .count = read.count * length}))
          << rank << '/' << degree;
    }
  }
}

}  // namespace
}  // namespace sprat::train
