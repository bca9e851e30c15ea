// What `sprat io bench` prints.
#include "cli/io/bench.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sprat::cli {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

io::BenchResult made_up(int ranks) {
  io::BenchResult result{.files = 12,
                         .bytes = 3'100'000'000,
                         .samples = 28'000,
                         .sample_bytes = 110'000,
                         .ranks = ranks,
                         .reading = "reads from ext by uring",
                         .plan = {.ways = {}, .rounds = 3, .turn_seconds = 0.5, .about = "so"}};
  result.ways = {{.way = {.access = io::BenchAccess::scattered,
                          .kind = io::all_reader_kinds().front(),
                          .direct = true,
                          .depth = 64},
                  .mbps = {640, 620, 700},
                  .slowest_mbps = {150, 140, 160}}};
  result.loader = {.mbps = {600, 610, 590},
                   .slowest_mbps = {145, 140, 150},
                   .samples_per_second = {5400, 5500, 5300},
                   .reader = "uring"};
  result.judgement = {.limit_mbps = 640, .share = 0.94, .sentence = "storage limits: it does"};
  return result;
}

TEST(IoBench, people_read_medians_and_what_limits) {
  const std::string text = io_bench_text(made_up(1));
  EXPECT_THAT(text, HasSubstr("12 files, 3,100 MB; 28000 samples of 110 KB in the mean; 1 rank\n"));
  EXPECT_THAT(text, ContainsRegex("samples anywhere, 110 KB, by uring, directly +640  620 to 700"));
  EXPECT_THAT(text,
              ContainsRegex("the loader +600  590 to 610 +5,400 samples/s, 94 % of the limit"));
  EXPECT_THAT(text, HasSubstr("\n\nstorage limits: it does\n"));
  EXPECT_THAT(text, Not(HasSubstr("slowest")));
  EXPECT_THAT(text, Not(HasSubstr("let go")));
}

TEST(IoBench, of_ranks_the_slowest_is_told) {
  EXPECT_THAT(io_bench_text(made_up(4)), ContainsRegex("the loader +600  590 to 610 +145  5,400"));
}

TEST(IoBench, what_was_let_go_of_is_said) {
  io::BenchResult result = made_up(1);
  result.released = {.files = 11, .refused = 1};
  EXPECT_THAT(
      io_bench_text(result),
      HasSubstr("page cache was asked to let go of 11 files; of 1 it could not be asked\n"));
}

TEST(IoBench, machines_read_the_same) {
  const auto json = nlohmann::json::parse(io_bench_json(made_up(4)));
  EXPECT_EQ(json["ways"][0]["median_mbps"], 640);
  EXPECT_EQ(json["ways"][0]["slowest_rank_mbps"], 150);
  EXPECT_EQ(json["loader"]["samples_per_second"], 5400);
  EXPECT_EQ(json["limit"], "storage");
  EXPECT_EQ(json["share"], 0.94);
  EXPECT_FALSE(json.contains("released_files"));
}

}  // namespace
}  // namespace sprat::cli
