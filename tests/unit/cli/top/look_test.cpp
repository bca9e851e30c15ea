// Who is late, from records that were read one after the other.
#include "cli/top/look.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/cli/top/host_looks.hpp"

namespace sprat::cli {
namespace {

using ::testing::ElementsAreArray;

struct LateCase {
  const char* name;
  std::uint64_t other_posted;  ///< Rank 0 is in its fifth call since 20 s.
  double other_taken;
  std::vector<std::size_t> late;
};

TEST(TopLooks, a_rank_is_late_that_has_not_called_what_another_waits_in) {
  for (const LateCase& one : std::vector<LateCase>{
           {"has called it, too", 5, 21, {}},
           {"is ahead", 6, 21, {}},
           {"has called one less", 4, 21, {1}},
           {"has called nothing", 0, 21, {1}},
           {"was read before it was called", 4, 19.9, {}},
           {"was read the moment it was called", 4, 20.00001, {}},
       }) {
    std::vector<RankLook> looks{rank_look(0, 20.5), rank_look(1, one.other_taken)};
    show_world(looks[0], 5, 20);
    show_world(looks[1], one.other_posted, 0);
    EXPECT_THAT(late_ranks(looks), ElementsAreArray(one.late)) << one.name;
  }
}

TEST(TopLooks, communicators_of_other_jobs_and_numbers_are_others) {
  std::vector<RankLook> looks{rank_look(0, 21), rank_look(1, 21), rank_look(1, 21)};
  show_world(looks[0], 5, 20);
  show_world(looks[1], 1, 0);
  show_world(looks[2], 1, 0);
  looks[1].record.job = "7-bb";
  looks[2].record.communicators.front().id = 2;
  EXPECT_TRUE(late_ranks(looks).empty());
}

TEST(TopLooks, nobody_is_late_where_nothing_is_in_flight) {
  std::vector<RankLook> looks{rank_look(0, 21), rank_look(1, 21)};
  show_world(looks[0], 9, 0);
  show_world(looks[1], 2, 0);
  EXPECT_TRUE(late_ranks(looks).empty());
}

}  // namespace
}  // namespace sprat::cli
