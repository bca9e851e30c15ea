// Batches come in their order, and every wait for one ends.
#include "io/loader/delivery.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

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

}  // namespace
}  // namespace sprat::io
