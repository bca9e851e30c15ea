// Batches come in their order, and every wait for one ends.
#include "io/loader/delivery.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>
#include <vector>

#include "io/loader/cached_rows.hpp"

namespace sprat::io {
namespace {

using Clock = Delivery::Clock;

std::shared_ptr<BatchBuild> build_of(std::uint64_t index, std::size_t samples,
                                     std::uint64_t bytes) {
  const auto build = std::make_shared<BatchBuild>();
  build->batch->index = index;
  build->batch->samples.resize(samples);
  build->left = samples;
  build->bytes = bytes;
  return build;
}

Clock::time_point soon() { return Clock::now() + std::chrono::milliseconds(1); }
Clock::time_point late() { return Clock::now() + std::chrono::minutes(1); }

TEST(Delivery, gives_batches_in_their_order_whichever_is_ready_first) {
  Delivery delivery;
  const auto first = build_of(0, 1, 10), second = build_of(1, 2, 20);
  delivery.announce(first);
  delivery.announce(second);
  delivery.sample_done(second);
  delivery.sample_done(second);
  EXPECT_FALSE(delivery.take(soon()));
  EXPECT_EQ(delivery.untaken_bytes(), 30u);
  delivery.sample_done(first);
  const auto taken = delivery.take(late());
  ASSERT_TRUE(taken && taken->batch);
  EXPECT_EQ(taken->batch->index, 0u);
  EXPECT_FALSE(taken->was_ready) << "somebody has waited for it before";
  EXPECT_EQ(taken->ready_bytes, 20u);
  EXPECT_EQ(delivery.take(late())->batch->index, 1u);
  EXPECT_EQ(delivery.untaken_bytes(), 0u);
}

TEST(Delivery, wakes_whoever_waits_for_the_last_sample) {
  Delivery delivery;
  const auto build = build_of(0, 1, 10);
  delivery.announce(build);
  std::thread other([&] { delivery.sample_done(build); });
  EXPECT_TRUE(delivery.take(late())->batch);
  other.join();
}

TEST(Delivery, a_batch_without_samples_is_ready) {
  Delivery delivery;
  delivery.announce(build_of(0, 0, 0));
  EXPECT_TRUE(delivery.take(late())->batch);
}

TEST(Delivery, says_the_end_behind_the_last_batch) {
  Delivery delivery;
  const auto build = build_of(0, 1, 10);
  delivery.announce(build);
  delivery.end();
  EXPECT_FALSE(delivery.take(soon()));
  delivery.sample_done(build);
  EXPECT_TRUE(delivery.take(late())->batch);
  EXPECT_FALSE(delivery.take(late())->batch);
}

TEST(Delivery, throws_a_batchs_error_in_its_place_and_again) {
  Delivery delivery;
  const auto first = build_of(0, 1, 10), second = build_of(1, 1, 20);
  delivery.announce(first);
  delivery.announce(second);
  delivery.fail(second, std::make_exception_ptr(std::runtime_error("bad")));
  delivery.sample_done(first);
  EXPECT_TRUE(delivery.take(late())->batch);
  EXPECT_THROW(delivery.take(late()), std::runtime_error);
  EXPECT_THROW(delivery.take(late()), std::runtime_error);
}

TEST(Delivery, an_error_of_all_spares_what_is_ready) {
  Delivery delivery;
  const auto first = build_of(0, 1, 10), second = build_of(1, 1, 20);
  delivery.announce(first);
  delivery.announce(second);
  delivery.sample_done(first);
  delivery.fail_all(std::make_exception_ptr(std::runtime_error("gone")));
  EXPECT_TRUE(delivery.take(late())->batch);
  EXPECT_THROW(delivery.take(late()), std::runtime_error);
}

TEST(Delivery, a_take_tells_when_it_makes_the_room_that_was_asked_for) {
  Delivery delivery;
  for (std::uint64_t index = 0; index < 4; ++index) {
    const auto build = build_of(index, 1, 10);
    delivery.announce(build);
    delivery.sample_done(build);
  }
  EXPECT_FALSE(delivery.take(late())->makes_room) << "nobody has asked";
  EXPECT_FALSE(delivery.ask_for_room(30)) << "there is room";
  EXPECT_TRUE(delivery.ask_for_room(15));
  EXPECT_FALSE(delivery.take(late())->makes_room);
  EXPECT_TRUE(delivery.take(late())->makes_room);
  EXPECT_FALSE(delivery.take(late())->makes_room) << "once";
}

TEST(Delivery, whoever_waits_helps_with_the_first_batch_that_has_open_rows) {
  Observer observer(1 << 20);
  const auto luck = std::make_shared<CacheLuck>();
  const auto with_rows = [&](std::uint64_t index) {
    const auto build = build_of(index, 1, 10);
    build->batch->rows = MemoryPool::make(0)->take(4);
    // Of no bytes, so that it is whole whatever the file system can do.
    build->cached = std::make_shared<RowCopies>(
        *build->batch, RowCopies::Rows{.pieces = {}, .behind = {0}, .files = {}}, luck, observer);
    return build;
  };
  const auto first = with_rows(0), second = with_rows(1);
  std::vector<std::uint64_t> helped;
  Delivery* told = nullptr;
  Delivery delivery([&](const std::shared_ptr<BatchBuild>& build) {
    helped.push_back(build->batch->index);
    told->sample_done(build, build->cached->copy().rows);
  });
  told = &delivery;
  delivery.announce(first);
  delivery.announce(second);
  EXPECT_EQ(delivery.take(soon())->batch->index, 0u);
  EXPECT_EQ(helped, std::vector<std::uint64_t>{0}) << "its own batch is ready then";
  EXPECT_TRUE(delivery.wait(soon()));
  EXPECT_EQ(helped, (std::vector<std::uint64_t>{0, 1}));
}

}  // namespace
}  // namespace sprat::io
