// Benches of files on disk: what is measured is what lies there.
#include "io/bench/run.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <filesystem>
#include <fstream>
#include <thread>

#include "io/readers/probe.hpp"
#include "io/readers/read_memory.hpp"
#include "sprat/error.hpp"
#include "tests/unit/io/dataset/written.hpp"

namespace sprat::io {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::SizeIs;

const GatherNumbers alone = [](double mine) { return std::vector{mine}; };

/// Two files of lines, about a hundred bytes each.
void write_lines(const TemporaryFolder& folder) {
  for (const char* name : {"a.jsonl", "b.jsonl"}) {
    std::ofstream out(folder / name);
    for (int line = 0; line < 2000; ++line) {
      out << R"({"text": ")" << std::string(90, 'x') << "\"}\n";
    }
  }
}

BenchRequest request_of(const TemporaryFolder& folder) {
  return {.loader = {.sources = {{.paths = {folder / "*.jsonl"}}}, .batch = 8}, .seconds = 2};
}

TEST(RunBench, every_way_and_the_loader_have_a_rate_in_each_round) {
  const TemporaryFolder folder;
  write_lines(folder);
  const BenchResult result = run_bench(request_of(folder), alone);
  EXPECT_EQ(result.files, 2u);
  EXPECT_EQ(result.samples, 4000u);
  EXPECT_EQ(result.bytes, 2u * 2000 * 103);
  EXPECT_EQ(result.sample_bytes, 102u);
  const auto rounds = static_cast<std::size_t>(result.plan.rounds);
  ASSERT_EQ(result.ways.size(), result.plan.ways.size());
  for (const MeasuredWay& way : result.ways) {
    EXPECT_THAT(way.mbps, AllOf(SizeIs(rounds), Each(Gt(0)))) << bench_way_text(way.way, 102);
  }
  EXPECT_THAT(result.loader.mbps, AllOf(SizeIs(rounds), Each(Gt(0))));
  EXPECT_THAT(result.loader.intervals, SizeIs(rounds));
  // The rates are of the same samples.
  EXPECT_NEAR(result.loader.samples_per_second[0] * 102 / 1e6, result.loader.mbps[0], 1e-6);
  EXPECT_GT(result.judgement.share, 0);
  EXPECT_FALSE(result.judgement.sentence.empty());
  EXPECT_FALSE(result.released);
}

TEST(RunBench, lets_go_of_pages_only_where_it_is_asked_to) {
  const TemporaryFolder folder;
  write_lines(folder);
  BenchRequest request = request_of(folder);
  request.cold = true;
  const BenchResult result = run_bench(request, alone);
  ASSERT_TRUE(result.released);
  EXPECT_EQ(result.released->files, 2u);
  EXPECT_EQ(result.released->refused, 0u);
}

TEST(RunBench, ranks_add_up) {
  const TemporaryFolder folder;
  write_lines(folder);
  Dataset::open({.paths = {folder / "*.jsonl"}});  // whose index both find
  constexpr std::size_t ranks = 2;
  std::vector<double> numbers(ranks);
  std::barrier meet(ranks);
  std::vector<BenchResult> results(ranks);
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        BenchRequest request = request_of(folder);
        request.loader.rank = static_cast<int>(rank);
        request.loader.ranks = ranks;
        results[rank] = run_bench(request, [&](double mine) {
          numbers[rank] = mine;
          meet.arrive_and_wait();
          std::vector<double> all = numbers;
          meet.arrive_and_wait();
          return all;
        });
      });
    }
  }
  EXPECT_EQ(results[0].loader.mbps, results[1].loader.mbps);
  EXPECT_EQ(results[0].ways[0].mbps, results[1].ways[0].mbps);
  for (const MeasuredWay& way : results[0].ways) {
    for (std::size_t round = 0; round < way.mbps.size(); ++round) {
      EXPECT_LE(2 * way.slowest_mbps[round], way.mbps[round]);
    }
  }
}

TEST(RunBench, ranks_with_other_ways_are_refused) {
  const TemporaryFolder folder;
  write_lines(folder);
  BenchRequest request = request_of(folder);
  request.loader.ranks = 2;
  const GatherNumbers other = [](double mine) { return std::vector{mine, mine + 1}; };
  EXPECT_THAT(complaint_about([&] { run_bench(request, other); }),
              HasSubstr("rank 0 reads by other ways than rank 1"));
}

TEST(RunBench, files_that_change_meanwhile_are_named) {
  const TemporaryFolder folder;
  write_lines(folder);
  int gathered = 0;
  // Between two turns a file is cut short.
  const GatherNumbers cutting = [&](double mine) {
    if (++gathered == 4) {
      std::filesystem::resize_file(folder / "b.jsonl", 50);
    }
    return std::vector{mine};
  };
  EXPECT_THAT(complaint_about([&] { run_bench(request_of(folder), cutting); }),
              HasSubstr("b.jsonl"));
}

TEST(RunBench, what_has_no_bytes_is_refused) {
  const TemporaryFolder folder;
  std::ofstream(folder / "a.txt");
  BenchRequest request = request_of(folder);
  request.loader.sources[0] = {.paths = {folder / "a.txt"}, .format = "text"};
  EXPECT_NE(complaint_about([&] { run_bench(request, alone); }), "");
  request.loader.epochs = 1;
  EXPECT_THAT(complaint_about([&] { run_bench(request, alone); }), HasSubstr("leave epochs out"));
}

/// Takes its time for each read: 1 MiB in 10 ms, eight at once.
class SlowReader final : public Reader {
 public:
  bool submit(const Read& read) override {
    reads_.push_back(read);
    return true;
  }
  std::vector<ReadDone> reap(std::chrono::nanoseconds) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::vector<ReadDone> done;
    for (const Read& read : reads_) {
      done.push_back({.tag = read.tag, .bytes = read.into.size()});
    }
    reads_.clear();
    return done;
  }
  void wake() override {}

 private:
  std::vector<Read> reads_;
};

TEST(RunBench, a_rate_is_that_of_the_reads) {
  const TemporaryFolder folder;
  std::ofstream(folder / "a.txt") << std::string(1 << 20, 'x');
  const FileTable files({Dataset::open({.paths = {folder / "a.txt"}, .format = "text"})});
  const ReaderKind slow = {.name = "slow",
                           .about = "",
                           .refusal = [](const FileSystem&) { return std::string_view(); },
                           .open = [](const ReaderOptions&) -> std::unique_ptr<Reader> {
                             return std::make_unique<SlowReader>();
                           }};
  const BenchWay way{.access = BenchAccess::scattered, .kind = &slow, .depth = 8};
  const NextExtent next = [] { return Extent{.file = 0, .offset = 0, .bytes = 1 << 20}; };
  // Eight MiB in 10 ms, and no faster; a busy machine may be slower.
  const double fastest = 8 * (1 << 20) / 10e-3 / 1e6;
  // Turns that end within a few reads, too.
  for (const double seconds : {0.009, 0.012, 0.05, 0.4}) {
    const double rate = read_rate(files, way, 1, next, seconds);
    EXPECT_LE(rate, 1.05 * fastest) << seconds;
    EXPECT_GT(rate, 0.1 * fastest) << seconds;
  }
}

}  // namespace
}  // namespace sprat::io
