// Memory beside tapes: there from its first step to its last, in slots that it shares.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "sprat/activations.hpp"
#include "sprat/error.hpp"

namespace sprat {
namespace {

constexpr std::size_t part_bytes = 4096;

/// A tape with a forward and a backward, and steps before, between and behind that have none.
ActivationProgram five_steps(std::vector<KeptMemory> kept) {
  return {.storage_bytes = {part_bytes},
          .tapes = {{.layer = 1, .microbatch = 0, .storages = {0}}},
          .steps = {{.pass = TapePass::forward, .tape = no_tape, .task = 0},
                    {.pass = TapePass::forward, .tape = 0, .task = 0},
                    {.pass = TapePass::forward, .tape = no_tape, .task = 0},
                    {.pass = TapePass::backward, .tape = 0, .task = 1},
                    {.pass = TapePass::backward, .tape = no_tape, .task = 1}},
          .kept = std::move(kept)};
}

TEST(ActivationMemory, holds_what_is_kept_until_its_last_step) {
  ActivationMemory memory(five_steps({{"gradients", part_bytes, 1, 3}}), {.poison = true});
  for (int pass = 0; pass < 2; ++pass) {
    for (int step = 0; step < 5; ++step) {
      memory.begin_step();
      if (step == 1) {
        std::ranges::fill(memory.kept(0), std::byte{42});
      }
      if (step == 3) {
        EXPECT_EQ(std::ranges::count(memory.kept(0), std::byte{42}), std::ptrdiff_t{part_bytes});
      }
      memory.end_step();
    }
  }
}

TEST(ActivationMemory, refuses_what_is_not_there) {
  ActivationMemory memory(five_steps({{"gradients", part_bytes, 1, 3}}));
  memory.begin_step();
  EXPECT_THROW(memory.kept(0), Error);
  EXPECT_THROW(memory.storage(0), Error);
  memory.end_step();
}

TEST(ActivationMemory, shares_slots_between_tapes_and_what_is_kept) {
  const ActivationMemory alone(five_steps({})),
      before_and_behind(five_steps({{"a", part_bytes, 0, 0}, {"b", part_bytes, 4, 4}})),
      beside(five_steps({{"a", part_bytes, 0, 1}}));
  EXPECT_EQ(alone.bytes_planned(), part_bytes);
  EXPECT_EQ(before_and_behind.bytes_planned(), part_bytes);
  EXPECT_EQ(beside.bytes_planned(), 2 * part_bytes);
}

TEST(ActivationMemory, moves_tapes_over_steps_without_one) {
  ActivationMemory memory(five_steps({}), {.tier = "memory", .offload = {.keep_last = 0}});
  for (int step = 0; step < 5; ++step) {
    memory.begin_step();
    if (step == 1) {
      std::ranges::fill(memory.storage(0), std::byte{7});
    }
    if (step == 3) {
      EXPECT_EQ(std::ranges::count(memory.storage(0), std::byte{7}), std::ptrdiff_t{part_bytes});
    }
    memory.end_step();
  }
  EXPECT_EQ(memory.counters().stores, 1u);
}

TEST(ActivationMemory, names_what_is_kept_beyond_the_program) {
  try {
    ActivationMemory(five_steps({{"gradients", part_bytes, 2, 5}}));
    FAIL() << "was taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("gradients is kept from step 2 to 5"));
  }
}

}  // namespace
}  // namespace sprat
