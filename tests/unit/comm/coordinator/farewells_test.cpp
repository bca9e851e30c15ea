// Farewells that are told in lots.
#include "comm/coordinator/farewells.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sprat::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Farewells, tell_of_the_first_at_once_and_of_those_soon_after_it_together) {
  Farewells farewells(8);
  Farewells::Time now{};
  EXPECT_THAT(farewells.due(now), IsEmpty());
  EXPECT_EQ(farewells.deadline(), std::nullopt);
  farewells.said(5);
  EXPECT_THAT(farewells.due(now), ElementsAre(5));
  EXPECT_EQ(farewells.deadline(), std::nullopt);
  farewells.said(3);
  farewells.said(1);
  EXPECT_THAT(farewells.due(now), IsEmpty());
  ASSERT_EQ(farewells.deadline(), now + 1ms);
  EXPECT_THAT(farewells.due(now + 1ms), ElementsAre(1, 3));
  farewells.said(2);
  EXPECT_THAT(farewells.rest(), ElementsAre(2));
  EXPECT_EQ(farewells.deadline(), std::nullopt);
}

TEST(Farewells, of_16384_ranks_that_leave_within_a_second_make_tens_of_lots) {
  constexpr int ranks = 16'384;
  Farewells farewells(ranks);
  Farewells::Time now{};
  int lots = 0;
  std::size_t told = 0;
  const auto take = [&](const std::vector<int>& due) {
    lots += due.empty() ? 0 : 1;
    told += due.size();
  };
  for (int rank = 0; rank < ranks; ++rank, now += 60us) {
    farewells.said(rank);
    take(farewells.due(now));
  }
  take(farewells.due(*farewells.deadline()));
  EXPECT_EQ(told, static_cast<std::size_t>(ranks));
  EXPECT_LT(lots, 100);
}

TEST(Farewells, travel_as_one_message) {
  const std::vector<int> many = {0, 1, 2, 3, 9};
  const ControlMessage message = farewell_of(many);
  EXPECT_LE(message.payload.size(), 8u);
  EXPECT_EQ(departing(message, 10), many);
  EXPECT_THAT(departing(message, 9), IsEmpty());  // who says so has another job
  EXPECT_THAT(departing(farewell_of({4}), 10), ElementsAre(4));
  EXPECT_THAT(departing(farewell_of({4}), 4), IsEmpty());
}

}  // namespace
}  // namespace sprat::comm
