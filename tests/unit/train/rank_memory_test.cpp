// What is told of memory before the first step.
#include "train/rank_memory.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace sprat::train {
namespace {

TEST(RankMemory, is_told_of_the_rank_that_holds_most_by_kind) {
  const std::vector<RankMemory> ranks = {
      {.states = 1 << 20, .activations = 1 << 20},
      {.states = 2 << 20, .parameters = 1 << 19, .messages = 1 << 18},
  };
  EXPECT_EQ(memory_text(ranks),
            "what a rank holds at most while it trains: 2.8 MiB, rank 1; "
            "where it is least 2.0 MiB, rank 0; together 4.8 MiB\n"
            "        2.0 MiB parameters, gradients, optimizer state\n"
            "        0.5 MiB parameters in use\n"
            "        0.2 MiB messages between stages\n");
}

TEST(RankMemory, of_one_rank_is_no_sum) {
  const std::vector<RankMemory> ranks = {{.states = 1 << 20, .sample = 1 << 19}};
  EXPECT_EQ(memory_text(ranks),
            "what a rank holds at most while it trains: 1.5 MiB, rank 0\n"
            "        1.0 MiB parameters, gradients, optimizer state\n"
            "        0.5 MiB a copy of all parameters, which writes the text at the end\n");
}

TEST(RankMemory, travels_as_numbers) {
  const RankMemory memory{.states = 1,
                          .parameters = 2,
                          .gradients = 3,
                          .activations = 4,
                          .messages = 5,
                          .text = 6,
                          .read_ahead = 7,
                          .sample = 8};
  EXPECT_EQ(numbers_of(memory_of(numbers_of(memory))), numbers_of(memory));
  EXPECT_EQ(memory.total(), 36u);
}

}  // namespace
}  // namespace sprat::train
