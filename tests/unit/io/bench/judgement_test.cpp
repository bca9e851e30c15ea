// What the figures of a bench mean.
#include "io/bench/judgement.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sprat::io {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using BenchLimit = BenchJudgement::Limit;

/// Rates of a disk: in order 800 MB/s, anywhere 400; the pool is half as fast; memory gives 5000.
struct Figures {
  std::vector<MeasuredWay> ways;
  MeasuredLoader loader;
};
Figures disk() {
  Figures figures;
  const auto add = [&](BenchAccess access, const char* kind, double mbps) {
    figures.ways.push_back({.way = {.access = access,
                                    .kind = kind != nullptr ? &reader_kind_named(kind) : nullptr,
                                    .direct = kind != nullptr},
                            .mbps = {0.5 * mbps, mbps, 1.5 * mbps},
                            .slowest_mbps = {mbps}});
  };
  add(BenchAccess::in_order, "uring", 800);
  add(BenchAccess::in_order, "pool", 400);
  add(BenchAccess::scattered, "uring", 400);
  add(BenchAccess::scattered, "pool", 200);
  add(BenchAccess::cached, nullptr, 5000);
  figures.loader.reader = "uring";
  figures.loader.direct = true;
  Interval turn{.seconds = 2};
  turn.bytes.file_system = 1000;
  turn.consumer_wait = 0.9;
  turn.stages = {{.name = "taking records apart", .threads = 4, .busy_seconds = 0.8}};
  figures.loader.intervals = {turn, turn};
  return figures;
}

BenchJudgement judged(Figures figures, double mbps) {
  figures.loader.mbps = {mbps};
  return judge_bench(figures.ways, figures.loader);
}

TEST(BenchJudgements, storage_limits_what_reads_nearly_as_fast) {
  const BenchJudgement result = judged(disk(), 760);
  EXPECT_EQ(result.limit, BenchLimit::storage);
  EXPECT_DOUBLE_EQ(result.limit_mbps, 800);
  EXPECT_DOUBLE_EQ(result.share, 0.95);
  EXPECT_THAT(result.sentence, HasSubstr("760 MB/s, 95 % of the 800 MB/s that storage gives"));
  EXPECT_THAT(result.sentence, Not(HasSubstr("chunks")));
}

TEST(BenchJudgements, samples_anywhere_are_held_against_samples_anywhere) {
  Figures figures = disk();
  figures.loader.scattered = true;
  const BenchJudgement result = judged(figures, 380);
  EXPECT_EQ(result.limit, BenchLimit::storage);
  EXPECT_DOUBLE_EQ(result.limit_mbps, 400);
  EXPECT_THAT(result.sentence,
              HasSubstr("shuffle \"chunks\" reads neighbours together, up to 800"));
}

TEST(BenchJudgements, memory_limits_what_comes_from_memory) {
  Figures figures = disk();
  const BenchJudgement faster = judged(figures, 4500);
  EXPECT_EQ(faster.limit, BenchLimit::page_cache) << "storage does not give that much";
  EXPECT_DOUBLE_EQ(faster.limit_mbps, 5000);
  // Short reads tell where they came from.
  for (Interval& turn : figures.loader.intervals) {
    turn.bytes.page_cache = 9000;
  }
  EXPECT_DOUBLE_EQ(judged(figures, 760).limit_mbps, 5000);
}

TEST(BenchJudgements, a_stage_whose_threads_are_busy_limits) {
  Figures figures = disk();
  for (Interval& turn : figures.loader.intervals) {
    turn.stages.push_back({.name = "unpack", .threads = 2, .busy_seconds = 3.8});
  }
  const BenchJudgement result = judged(figures, 300);
  EXPECT_EQ(result.limit, BenchLimit::decode);
  EXPECT_THAT(result.sentence, HasSubstr("unpack keeps its 2 threads busy for 95 % of the time"));
  EXPECT_EQ(judged(figures, 790).limit, BenchLimit::storage)
      << "and storage, where that is used up";
}

TEST(BenchJudgements, a_slower_reader_limits) {
  Figures figures = disk();
  figures.loader.reader = "pool";
  const BenchJudgement result = judged(figures, 390);
  EXPECT_EQ(result.limit, BenchLimit::reader);
  EXPECT_THAT(result.sentence, HasSubstr("pool directly reads 400 MB/s, and uring directly 800; "));
  EXPECT_THAT(result.sentence, HasSubstr("; say reading.reader \"uring\""));
}

TEST(BenchJudgements, the_page_cache_that_is_filled_limits) {
  Figures figures = disk();
  figures.loader.direct = false;
  EXPECT_EQ(judged(figures, 190).limit, BenchLimit::loader) << "its way was not measured";
  figures.ways.push_back(
      {.way = {.access = BenchAccess::in_order, .kind = &reader_kind_named("uring")},
       .mbps = {200},
       .slowest_mbps = {200}});
  const BenchJudgement result = judged(figures, 190);
  EXPECT_EQ(result.limit, BenchLimit::reader);
  EXPECT_THAT(result.sentence,
              HasSubstr("uring through the page cache reads 200 MB/s, and uring directly 800; "));
  EXPECT_THAT(result.sentence, HasSubstr("until the page cache has these files"));
  // Of readers through the page cache the better one comes first.
  figures.ways.push_back(
      {.way = {.access = BenchAccess::in_order, .kind = &reader_kind_named("pool")},
       .mbps = {300},
       .slowest_mbps = {300}});
  EXPECT_THAT(judged(figures, 190).sentence,
              HasSubstr("and pool through the page cache 300; the loader gives 190 MB/s"));
  EXPECT_THAT(judged(figures, 190).sentence, HasSubstr("say reading.reader \"pool\""));
}

TEST(BenchJudgements, who_takes_batches_limits_where_they_lie_ready) {
  Figures figures = disk();
  for (Interval& turn : figures.loader.intervals) {
    turn.consumer_wait = 0.02;
  }
  const BenchJudgement result = judged(figures, 300);
  EXPECT_EQ(result.limit, BenchLimit::consumer);
  EXPECT_THAT(result.sentence, HasSubstr("ready for 98 % of the time"));
}

TEST(BenchJudgements, what_nothing_explains_is_the_loaders) {
  const BenchJudgement result = judged(disk(), 300);
  EXPECT_EQ(result.limit, BenchLimit::loader);
  EXPECT_THAT(result.sentence, HasSubstr("300 MB/s, 38 % of the 800 MB/s"));
}

TEST(BenchJudgements, medians_are_not_moved_by_one_value) {
  EXPECT_EQ(median_of({}), 0);
  EXPECT_EQ(median_of({3, 1e9, 1}), 3);
  EXPECT_EQ(median_of({4, 1, 2, 1e9}), 3);
}

}  // namespace
}  // namespace sprat::io
