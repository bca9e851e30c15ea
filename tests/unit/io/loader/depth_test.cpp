// How far ahead is read, by how batches were taken.
#include "io/loader/depth.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace sprat::io {
namespace {

/// A batch that had to be waited for although storage had nothing left to do.
void wait_for_more(ReadAhead& window) {
  window.held_back();
  window.taken(false, 0);
}

TEST(ReadAhead, grows_at_waits_that_it_has_caused_up_to_the_budget) {
  struct Row {
    const char* about;
    std::vector<bool> held_back, was_ready;  // of each batch
    std::uint64_t bytes;                     // at last
  };
  const std::vector<Row> rows{
      {"the first batch has to come first", {false}, {false}, 100},
      {"storage is busy and slower than the reader",
       {false, false, false},
       {false, false, false},
       100},
      {"storage stood still, then came late", {true, false, false}, {true, true, false}, 200},
      {"that was one wait", {true, false, false}, {true, false, false}, 200},
      {"at each wait", {true, true, true}, {false, false, false}, 800},
      {"the budget is the end",
       {true, true, true, true, true},
       {false, false, false, false, false},
       1000},
      {"nobody waits", {true, true, true}, {true, true, true}, 100},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.about);
    ReadAhead window(100, 1000);
    for (std::size_t batch = 0; batch < row.was_ready.size(); ++batch) {
      if (row.held_back[batch]) {
        window.held_back();
      }
      window.taken(row.was_ready[batch], 0);
    }
    EXPECT_EQ(window.bytes(), row.bytes);
  }
}

TEST(ReadAhead, shrinks_after_a_hundred_full_windows_and_never_below_its_least) {
  ReadAhead window(100, 1000);
  wait_for_more(window);
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
  wait_for_more(window);
  for (int i = 0; i < 500; ++i) {
    window.taken(true, i % 50 == 0 ? 0 : window.bytes());
  }
  EXPECT_EQ(window.bytes(), 200u);
}

TEST(ReadAhead, a_budget_below_two_batches_is_all_there_is) {
  ReadAhead window(100, 10);
  EXPECT_EQ(window.bytes(), 10u);
  wait_for_more(window);
  EXPECT_EQ(window.bytes(), 10u);
}

}  // namespace
}  // namespace sprat::io
