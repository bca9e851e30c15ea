// When a wait is worth a warning.
#include "collectives/engine/stragglers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sprat::collectives {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;

TEST(Stragglers, warns_once_of_an_operation) {
  Stragglers stragglers(30s);
  EXPECT_FALSE(stragglers.warn(29s, {3}));
  EXPECT_TRUE(stragglers.warn(30s, {3}));
  EXPECT_FALSE(stragglers.warn(31s, {3}));
  stragglers.forget();
  EXPECT_TRUE(stragglers.warn(30s, {3}));
}

TEST(Stragglers, never_warns_after_zero) {
  Stragglers stragglers(0s);
  EXPECT_FALSE(stragglers.warn(1h, {3}));
}

TEST(Stragglers, tells_once_of_each_that_came) {
  Stragglers stragglers(1s);
  ASSERT_TRUE(stragglers.warn(2s, {1, 3}));
  EXPECT_THAT(stragglers.came({1, 3}), ElementsAre());
  EXPECT_THAT(stragglers.came({3}), ElementsAre(1));
  EXPECT_THAT(stragglers.came({1, 3}), ElementsAre()) << "late again is no news";
  EXPECT_THAT(stragglers.came({}), ElementsAre(3));
  EXPECT_THAT(stragglers.came({}), ElementsAre());
}

}  // namespace
}  // namespace sprat::collectives
