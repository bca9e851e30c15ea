// Batches: the same for all ranks, whatever their number.
#include "io/order/global_batches.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "sprat/error.hpp"

namespace sprat::io {
namespace {

std::vector<std::uint64_t> numbers_of(const GlobalBatches& batches, std::uint64_t batch,
                                      std::uint64_t size, std::uint64_t epoch_samples) {
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t slot = 0; slot < size; ++slot) {
    const StreamPosition at = batches.sample(batch, slot);
    numbers.push_back(at.epoch * epoch_samples + at.index);
  }
  return numbers;
}

using Numbers = std::vector<std::uint64_t>;

TEST(GlobalBatches, ranks_together_take_each_slot_once_and_in_order) {
  for (std::uint64_t batch = 1; batch <= 70; ++batch) {
    const GlobalBatches batches({.epoch_samples = 1000, .batch = batch});
    for (const std::uint64_t ranks : {1u, 2u, 3u, 4u, 5u, 8u, 16u, 100u}) {
      std::uint64_t next = 0;
      for (std::uint64_t rank = 0; rank < ranks; ++rank) {
        const BatchSlots slots = batches.share(rank, ranks);
        ASSERT_EQ(slots.begin, next);
        ASSERT_GE(slots.end - slots.begin, batch / ranks);
        ASSERT_LE(slots.end - slots.begin, batch / ranks + 1);
        next = slots.end;
      }
      ASSERT_EQ(next, batch);
    }
  }
}

TEST(GlobalBatches, what_fills_no_batch_is_carried_over) {
  const GlobalBatches batches({.epoch_samples = 10, .batch = 4});
  EXPECT_EQ(numbers_of(batches, 2, 4, 10), (Numbers{8, 9, 10, 11}));
  EXPECT_EQ(batches.sample(2, 2), (StreamPosition{1, 0}));
  EXPECT_EQ(batches.position(3), (StreamPosition{1, 2}));
}

TEST(GlobalBatches, what_fills_no_batch_is_dropped) {
  const GlobalBatches batches({.epoch_samples = 10, .batch = 4, .remainder = Remainder::drop});
  EXPECT_EQ(numbers_of(batches, 1, 4, 10), (Numbers{4, 5, 6, 7}));
  EXPECT_EQ(numbers_of(batches, 2, 4, 10), (Numbers{10, 11, 12, 13}));
  EXPECT_EQ(batches.position(5), (StreamPosition{2, 4}));
}

TEST(GlobalBatches, the_last_batch_is_filled_from_the_epochs_beginning) {
  const GlobalBatches batches({.epoch_samples = 10, .batch = 4, .remainder = Remainder::pad});
  EXPECT_EQ(numbers_of(batches, 2, 4, 10), (Numbers{8, 9, 0, 1}));
  EXPECT_EQ(numbers_of(batches, 3, 4, 10), (Numbers{10, 11, 12, 13}));
  const GlobalBatches small({.epoch_samples = 3, .batch = 8, .remainder = Remainder::pad});
  EXPECT_EQ(numbers_of(small, 1, 8, 3), (Numbers{3, 4, 5, 3, 4, 5, 3, 4}));
}

TEST(GlobalBatches, go_on_where_others_stopped) {
  for (const Remainder remainder : {Remainder::carry, Remainder::drop, Remainder::pad}) {
    const GlobalBatches whole({.epoch_samples = 103, .batch = 8, .remainder = remainder});
    for (std::uint64_t stopped = 0; stopped < 60; ++stopped) {
      const GlobalBatches rest({.epoch_samples = 103,
                                .batch = 8,
                                .remainder = remainder,
                                .start = whole.position(stopped)});
      for (std::uint64_t batch = 0; batch < 40; ++batch) {
        ASSERT_EQ(numbers_of(rest, batch, 8, 103), numbers_of(whole, stopped + batch, 8, 103))
            << "stopped before " << stopped << ", batch " << batch;
      }
    }
  }
}

TEST(GlobalBatches, of_another_size_go_on_with_the_next_sample) {
  const GlobalBatches first({.epoch_samples = 103, .batch = 8});
  const GlobalBatches rest({.epoch_samples = 103, .batch = 24, .start = first.position(40)});
  EXPECT_EQ(numbers_of(rest, 0, 24, 103)[0], 320u);
  EXPECT_EQ(numbers_of(rest, 9, 24, 103)[23], 320u + 239u);
  // An epoch that was begun with other batches may have none left that is whole.
  const GlobalBatches dropped({.epoch_samples = 20,
                               .batch = 8,
                               .remainder = Remainder::drop,
                               .start = {.epoch = 2, .index = 15}});
  EXPECT_EQ(dropped.position(0), (StreamPosition{3, 0}));
}

TEST(GlobalBatches, refuse_what_gives_no_batch) {
  const auto make = [](const BatchOptions& options) { GlobalBatches{options}; };
  EXPECT_THROW(make({.epoch_samples = 10, .batch = 0}), Error);
  EXPECT_THROW(make({.epoch_samples = 0, .batch = 1}), Error);
  EXPECT_THROW(make({.epoch_samples = 10, .batch = 11, .remainder = Remainder::drop}), Error);
  EXPECT_THROW(make({.epoch_samples = 10, .batch = 2, .start = {.index = 10}}), Error);
}

}  // namespace
}  // namespace sprat::io
