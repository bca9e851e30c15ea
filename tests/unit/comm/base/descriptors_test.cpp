// Limits of open files: raised as far as needed, and no further than they may be.
#include "comm/base/descriptors.hpp"

#include <gtest/gtest.h>

#include "tests/unit/comm/base/soft_limit.hpp"

namespace sprat::comm {
namespace {

TEST(Descriptors, raise_the_soft_limit_if_it_is_too_low) {
  const SoftLimit low(200);
  EXPECT_TRUE(make_room_for_descriptors(8));
  EXPECT_EQ(soft_limit(), 200u);
  EXPECT_TRUE(make_room_for_descriptors(400));
  EXPECT_GE(soft_limit(), 400u);
  EXPECT_LT(soft_limit(), 1'024u);
}

TEST(Descriptors, say_that_the_hard_limit_is_too_low) {
  const SoftLimit low(200);
  if (low.hard() == RLIM_INFINITY) {
    GTEST_SKIP() << "needs a hard limit";
  }
  EXPECT_EQ(most_descriptors(), low.hard());
  EXPECT_FALSE(make_room_for_descriptors(low.hard()));
  EXPECT_EQ(soft_limit(), low.hard());
}

}  // namespace
}  // namespace sprat::comm
