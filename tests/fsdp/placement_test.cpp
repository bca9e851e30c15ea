// The placement table and its formulas.
#include "fsdp/placement.hpp"

#include <gtest/gtest.h>

#include <string>

namespace sprat::fsdp {
namespace {

TEST(Strategy, degree_chooses_the_row) {
  struct Case {
    int ranks, degree;
    const char* name;
  };
  for (const Case& one : {Case{1, 1, "ddp"}, Case{4, 1, "ddp"}, Case{4, 2, "hsdp"},
                          Case{4, 4, "zero3"}, Case{6, 3, "hsdp"}, Case{7, 7, "zero3"}}) {
    EXPECT_STREQ(strategy_for(one.ranks, one.degree).name, one.name)
        << one.ranks << " ranks, degree " << one.degree;
  }
}

TEST(Strategy, every_row_is_chosen_by_some_degree) {
  for (const Strategy& strategy : all_strategies()) {
    bool chosen = false;
    for (const int degree : allowed_degrees(4)) {
      chosen = chosen || &strategy_for(4, degree) == &strategy;
    }
    EXPECT_TRUE(chosen) << strategy.name;
  }
}

TEST(Strategy, a_degree_that_does_not_divide_is_refused_with_the_allowed_ones) {
  for (const int degree : {-2, 0, 5, 8, 24}) {
    try {
      strategy_for(12, degree);
      ADD_FAILURE() << "degree " << degree << " was taken";
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(message.find("hybrid_shard_degree " + std::to_string(degree)), std::string::npos);
      EXPECT_NE(message.find("allowed: 1, 2, 3, 4, 6, 12"), std::string::npos) << message;
    }
  }
}

TEST(Strategy, kept_bytes_are_sixteen_an_element_over_the_shard_degree) {
  constexpr std::size_t elements = 8 * 1024 * 12;
  for (const int ranks : {1, 2, 4, 6, 12}) {
    for (const int degree : allowed_degrees(ranks)) {
      const KeptBytes kept =
          kept_bytes(strategy_for(ranks, degree), elements, ranks / degree, degree);
      EXPECT_EQ(kept.parameters, 4 * elements / degree) << ranks << " ranks, degree " << degree;
      EXPECT_EQ(kept.gradients, 4 * elements / degree) << ranks << " ranks, degree " << degree;
      EXPECT_EQ(kept.total(), 16 * elements / degree) << ranks << " ranks, degree " << degree;
    }
  }
}

}  // namespace
}  // namespace sprat::fsdp
