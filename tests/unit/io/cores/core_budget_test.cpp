// The clocks of the budget of cores, and whom it lets decode.
#include "io/cores/core_budget.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace sprat::io {
namespace {

using namespace std::chrono_literals;
using Role = CoreBudget::Role;

void spin_for(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

TEST(CoreBudget, counts_the_cpu_time_of_those_who_decode_and_read_apart) {
  CoreBudget budget({.cores = 2, .read_threads = 1, .decode_threads = 1});
  std::thread decoder([&] {
    CoreBudget::Member member(budget, Role::decodes);
    spin_for(60ms);
  });
  decoder.join();
  std::thread reader([&] {
    CoreBudget::Member member(budget, Role::reads);
    spin_for(20ms);
  });
  reader.join();
  const CoreUse use = budget.observe(0);
  // They may have been off the core for a while, never on it for longer.
  EXPECT_GT(use.decode_seconds, 0);
  EXPECT_GT(use.read_seconds, 0);
  EXPECT_LE(use.decode_seconds + use.read_seconds, use.seconds);
  EXPECT_EQ(use.budget, 2);
  const CoreUse next = budget.observe(0);
  EXPECT_EQ(next.decode_seconds + next.read_seconds, 0) << "they have ended";
}

TEST(CoreBudget, sees_reductions_beside_decoding_and_without) {
  CoreBudget budget({.cores = 2, .read_threads = 1, .decode_threads = 1});
  for (int reduction = 0; reduction < 10; ++reduction) {
    {
      const CoreBudget::Decoding decoding(budget);
      spin_for(4ms);
      budget.note_reduction(3ms, 1 << 20);
    }
    spin_for(5ms);
    budget.note_reduction(2ms, 1 << 20);
  }
  const CoreUse use = budget.observe(0);
  EXPECT_EQ(use.reduced_bytes, std::uint64_t{20} << 20);
  EXPECT_NEAR(use.reduced_in_seconds, 0.05, 1e-9);
  ASSERT_TRUE(use.slowdown);
  EXPECT_NEAR(*use.slowdown, 0.5, 1e-6);
}

void lower_decoders_until_one_is_left() {
  CoreBudget budget({.cores = 2, .read_threads = 1, .decode_threads = 3});
  std::vector<std::unique_ptr<CoreBudget::Member>> members;
  for (int member = 0; member < 3; ++member) {
    members.push_back(std::make_unique<CoreBudget::Member>(budget, Role::decodes));
  }
  const auto allowed = [&] {
    int count = 0;
    for (const auto& member : members) {
      count += member->may_decode() ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(allowed(), 3);
  CoreUse use;
  for (int time = 0; time < 40; ++time) {
    for (int reduction = 0; reduction < 10; ++reduction) {
      budget.note_reduction(1ms, 1 << 20);
    }
    // All of the decoders that are left.
    std::vector<std::unique_ptr<CoreBudget::Decoding>> decoding;
    for (int decoder = 0; decoder < 3; ++decoder) {
      decoding.push_back(std::make_unique<CoreBudget::Decoding>(budget));
    }
    spin_for(3ms);
    for (int reduction = 0; reduction < 10; ++reduction) {
      budget.note_reduction(2ms, 1 << 20);
    }
    decoding.clear();
    spin_for(2ms);
    use = budget.observe(0);
  }
  EXPECT_EQ(use.decision, (CoreDecision{.decoders = 1, .give_way = true}));
  EXPECT_EQ(allowed(), 1);
}

TEST(CoreBudget, lets_fewer_decode_when_reductions_suffer_and_one_at_least) {
  // A thread of its own: it takes on a low priority, which it may not be allowed to leave again.
  std::thread(lower_decoders_until_one_is_left).join();
}

TEST(CoreBudget, gives_the_place_of_a_thread_that_ended_to_the_next) {
  CoreBudget budget({.cores = 2, .read_threads = 1, .decode_threads = 1});
  auto first = std::make_unique<CoreBudget::Member>(budget, Role::decodes);
  CoreBudget::Member second(budget, Role::decodes);
  EXPECT_TRUE(first->may_decode());
  EXPECT_FALSE(second.may_decode());
  first.reset();
  CoreBudget::Member third(budget, Role::decodes);
  EXPECT_TRUE(third.may_decode());
}

}  // namespace
}  // namespace sprat::io
