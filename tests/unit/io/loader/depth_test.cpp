// How far ahead is read, by how batches were taken.
#include "io/loader/depth.hpp"

#include <gtest/gtest.h>

namespace sprat::io {
namespace {

TEST(ReadAhead, grows_while_batches_are_waited_for_up_to_the_budget) {
  ReadAhead window(100, 1000);
  EXPECT_EQ(window.bytes(), 100u);
  window.taken(false, 0);
  EXPECT_EQ(window.bytes(), 200u);
  for (int i = 0; i < 10; ++i) {
    window.taken(false, 0);
  }
  EXPECT_EQ(window.bytes(), 1000u);
}

TEST(ReadAhead, shrinks_after_a_hundred_full_windows_and_never_below_its_least) {
  ReadAhead window(100, 1000);
  window.taken(false, 0);
  for (int i = 0; i < 99; ++i) {
    window.taken(true, window.bytes());
  }
  EXPECT_EQ(window.bytes(), 200u);
  window.taken(true, window.bytes());
  EXPECT_EQ(window.bytes(), 150u);
  for (int i = 0; i < 1000; ++i) {
    window.taken(true, window.bytes());
  }
  EXPECT_EQ(window.bytes(), 100u);
}

TEST(ReadAhead, a_window_that_is_half_empty_stays) {
  ReadAhead window(100, 1000);
  window.taken(false, 0);
  for (int i = 0; i < 500; ++i) {
    window.taken(true, i % 50 == 0 ? 0 : window.bytes());
  }
  EXPECT_EQ(window.bytes(), 200u);
}

TEST(ReadAhead, a_budget_below_two_batches_is_all_there_is) {
  ReadAhead window(100, 10);
  EXPECT_EQ(window.bytes(), 10u);
  window.taken(false, 0);
  EXPECT_EQ(window.bytes(), 10u);
}

}  // namespace
}  // namespace sprat::io
