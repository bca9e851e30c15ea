// Which way long reads take, by what each way has brought.
#include "io/readers/cache_bypass.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace sprat::io {
namespace {

using namespace std::chrono_literals;
using Way = CacheBypass::Way;

constexpr std::uint64_t read_bytes = std::uint64_t{4} << 20;

/// Reads one after another, each of 4 MiB, at a rate by way.
struct Storage {
  double through_bytes_s = 0, past_bytes_s = 0;
  CacheBypass bypass{};
  CacheBypass::Moment now{};
  std::uint64_t past = 0;
  double hiccup_s = 0;  // of the next read past the cache

  /// Returns how many of them went past the cache.
  std::uint64_t read(std::uint64_t reads) {
    past = 0;
    for (std::uint64_t i = 0; i < reads; ++i) {
      const bool goes_past = bypass.next() == Way::past;
      past += goes_past ? 1 : 0;
      const double seconds = read_bytes / (goes_past ? past_bytes_s : through_bytes_s) +
                             (goes_past ? std::exchange(hiccup_s, 0) : 0);
      now +=
          std::chrono::duration_cast<CacheBypass::Moment>(std::chrono::duration<double>(seconds));
      bypass.ended(read_bytes, now);
    }
    return past;
  }
};

constexpr std::uint64_t window_reads = 24;  // those before it settle

TEST(CacheBypass, takes_the_way_that_is_quicker_and_looks_at_the_other_now_and_then) {
  struct Row {
    const char* about;
    double through, past;
    std::uint64_t least, most;  // of 100 windows' reads, those past the cache
  };
  const std::vector<Row> rows{
      {"a fast disk and few cores", 0.8e9, 2e9, 1850, 2150},
      {"a slow disk: both ways are as quick as it is", 0.25e9, 0.25e9, 80, 200},
      {"not by enough to read it all anew", 1e9, 1.15e9, 80, 200},
      {"large blocks are slow here", 1e9, 0.1e9, 40, 80},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.about);
    Storage storage{.through_bytes_s = row.through, .past_bytes_s = row.past};
    EXPECT_EQ(storage.read(window_reads), 0u) << "the first window fills the cache";
    EXPECT_GT(storage.read(window_reads), 0u) << "the second one tries";
    const std::uint64_t past = storage.read(100 * window_reads);
    EXPECT_GE(past, row.least);
    EXPECT_LE(past, row.most);
  }
}

TEST(CacheBypass, looks_more_rarely_the_more_a_look_costs) {
  struct Row {
    const char* about;
    double better, other;
    std::uint32_t windows;
  };
  const std::vector<Row> rows{
      {"both are as quick", 1e9, 1e9, 16},   {"the better one had a hiccup", 0.8e9, 1e9, 16},
      {"half as quick", 2e9, 1e9, 50},       {"a third as quick", 3e9, 1e9, 100},
      {"a tenth as quick", 1e9, 0.1e9, 256}, {"nothing came", 1e9, 0, 256},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.about);
    EXPECT_NEAR(trial_windows(row.better, row.other), row.windows, 1);
  }
}

// The time that all trials lose, beside that of never trying.
TEST(CacheBypass, loses_little_by_its_looks) {
  Storage storage{.through_bytes_s = 0.3e9, .past_bytes_s = 1e9};
  storage.read(100 * window_reads);  // it has found out
  const auto before = storage.now;
  const std::uint64_t reads = 1000 * window_reads;
  const auto through = static_cast<double>(reads - storage.read(reads));
  const double took = std::chrono::duration<double>(storage.now - before).count();
  EXPECT_LT(through / static_cast<double>(reads), 1.0 / 8 + 0.02) << "one of eight is kept";
  EXPECT_GT(through / static_cast<double>(reads), 1.0 / 8);
  EXPECT_LT(took, 1.35 * static_cast<double>(reads) * read_bytes / 1e9);
}

TEST(CacheBypass, keeps_one_read_of_eight_in_the_cache) {
  Storage storage{.through_bytes_s = 1e8, .past_bytes_s = 1e9};
  storage.read(3 * window_reads);
  EXPECT_EQ(storage.read(8), 7u);
}

TEST(CacheBypass, follows_a_change_of_the_machine) {
  Storage storage{.through_bytes_s = 0.8e9, .past_bytes_s = 2e9};
  storage.read(4 * window_reads);
  storage.through_bytes_s = 4e9;  // cores are free again
  storage.read(40 * window_reads);
  EXPECT_LE(storage.read(100 * window_reads), 200u);
}

TEST(CacheBypass, is_not_misled_for_long_by_a_hiccup) {
  Storage storage{.through_bytes_s = 0.8e9, .past_bytes_s = 2e9};
  storage.read(window_reads + 10);
  storage.hiccup_s = 0.3;  // within the first window past the cache
  storage.read(4 * window_reads);
  EXPECT_GE(storage.read(10 * window_reads), 150u);
}

TEST(CacheBypass, learns_nothing_of_times_in_which_storage_idles) {
  Storage storage{.through_bytes_s = 1e8, .past_bytes_s = 1e9};
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(storage.read(window_reads - 1), 0u);
    storage.bypass.idles();
  }
}

TEST(CacheBypass, never_tries_again_what_was_refused) {
  Storage storage{.through_bytes_s = 1e8, .past_bytes_s = 1e9};
  storage.read(2 * window_reads);
  storage.bypass.refuse();
  EXPECT_TRUE(storage.bypass.refused());
  EXPECT_EQ(storage.read(100 * window_reads), 0u);
}

}  // namespace
}  // namespace sprat::io
