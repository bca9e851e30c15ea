// Which ways of reading are measured, in how many turns.
#include "io/bench/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "sprat/error.hpp"

namespace sprat::io {
namespace {

using ::testing::HasSubstr;

BenchFacts on_ext(double seconds) {
  return {.where = {.kind = "ext", .takes_direct = true, .alignment = 4096, .tries_reads = true},
          .seconds = seconds};
}

TEST(BenchPlans, every_reader_that_reads_here_reads_in_order_and_anywhere) {
  std::set<std::string> wanted, planned;
  for (const ReaderKind* kind : all_reader_kinds()) {
    if (kind->refusal(on_ext(20).where).empty()) {
      wanted.insert("files in order, 4 MiB, by " + std::string(kind->name) + ", directly");
      wanted.insert("samples anywhere, 110 KB, by " + std::string(kind->name) + ", directly");
    }
  }
  wanted.insert("samples from the page cache, by preads");
  for (const BenchWay& way : plan_bench(on_ext(20)).ways) {
    planned.insert(bench_way_text(way, 110'000));
  }
  EXPECT_GE(wanted.size(), 3u);
  EXPECT_EQ(planned, wanted);
}

TEST(BenchPlans, readers_that_a_file_system_refuses_are_left_out) {
  BenchFacts facts = on_ext(20);
  const std::size_t all = plan_bench(facts).ways.size();
  facts.where.uring_error = 1;  // EPERM, as Docker gives it
  std::size_t left = 1;
  for (const ReaderKind* kind : all_reader_kinds()) {
    left += kind->refusal(facts.where).empty() ? 2 : 0;
  }
  EXPECT_LT(left, all);
  EXPECT_EQ(plan_bench(facts).ways.size(), left);
}

TEST(BenchPlans, storage_is_read_through_the_page_cache_where_that_has_nothing_of_it) {
  BenchFacts facts = on_ext(20);
  const std::size_t direct = plan_bench(facts).ways.size() - 1;
  facts.cold = true;
  EXPECT_EQ(plan_bench(facts).ways.size(), 2 * direct + 1);
}

TEST(BenchPlans, all_turns_fill_the_seconds) {
  for (const double seconds : {2.0, 5.0, 20.0, 600.0}) {
    const BenchPlan plan = plan_bench(on_ext(seconds));
    const double turns = plan.rounds * (static_cast<double>(plan.ways.size()) + 1);
    EXPECT_NEAR(plan.turn_seconds * turns, seconds, 1e-9) << seconds;
    EXPECT_LE(plan.rounds, 5) << seconds;
    EXPECT_GE(plan.turn_seconds, 0.25) << seconds;
  }
  EXPECT_EQ(plan_bench(on_ext(20)).rounds, 5);
}

TEST(BenchPlans, moments_and_eternities_are_refused) {
  EXPECT_THROW(plan_bench(on_ext(0.5)), Error);
  EXPECT_THROW(plan_bench(on_ext(-1)), Error);
  EXPECT_THROW(plan_bench(on_ext(std::numeric_limits<double>::infinity())), Error);
  EXPECT_THROW(plan_bench(on_ext(std::numeric_limits<double>::quiet_NaN())), Error);
}

TEST(BenchPlans, without_direct_reads_it_is_said_what_counts_as_storage) {
  BenchFacts facts = on_ext(20);
  EXPECT_THAT(plan_bench(facts).about, HasSubstr("past the page cache"));
  facts.where = {.kind = "tmpfs", .tries_reads = true};
  EXPECT_THAT(plan_bench(facts).about,
              HasSubstr("tmpfs takes no direct reads: what the page cache"));
  facts.cold = true;
  EXPECT_THAT(plan_bench(facts).about, HasSubstr("let go of first"));
  for (const BenchWay& way : plan_bench(facts).ways) {
    EXPECT_FALSE(way.direct) << bench_way_text(way, 1);
  }
}

}  // namespace
}  // namespace sprat::io
