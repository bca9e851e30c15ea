// What ranks note is collected on one clock, left beside the file by those that fail, and costs
// nothing where nobody asks for it.
#include "collectives/timeline.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/timeline/rank_timeline.hpp"
#include "sprat/communicator.hpp"
#include "tests/unit/comm/bootstrap/map_store.hpp"
#include "tests/unit/comm/bootstrap/rendezvous_ranks.hpp"

namespace sprat::collectives {
namespace {

using Json = nlohmann::json;
using comm::timeline::ClockFit;

constexpr std::int64_t us = 1000, second = 1'000'000'000;

std::int64_t true_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class TracedJob : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("sprat-trace-" + std::to_string(true_now()));
    std::filesystem::create_directory(folder_);
    config_.trace = folder_ / "t.json";
    config_.timeout = std::chrono::seconds(20);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// Those that have left parts, by the parts' names.
  std::set<std::string> jobs() const {
    std::set<std::string> jobs;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const std::string name = entry.path().filename();
      if (const auto end = name.rfind(".rank"); end != name.npos) {
        jobs.insert(name.substr(7, end - 7));  // behind "t.json."
      }
    }
    return jobs;
  }
  /// In a rank's part.
  std::int64_t barriers(const std::string& job, int rank) const {
    const std::string path = config_.trace + "." + job + ".rank" + std::to_string(rank);
    const std::string part = content(path);
    const auto told =
        comm::timeline::unpacked(std::as_bytes(std::span(part.data(), part.size())), path);
    EXPECT_EQ(told.rank, rank);
    EXPECT_EQ(told.job, job);
    return std::ranges::count(told.events, "barrier", [](const auto& event) {
      return comm::timeline::text_of(event.name);
    });
  }

  std::filesystem::path folder_;
  Config config_;
};

// The clocks at the seam are ranks' own, the link is a real one, and slower on the way back.
TEST(JobClocks, seeded_offsets_and_drifts_are_within_the_bound_over_an_asymmetric_link) {
  Config config;
  config.host = "a,b";
  for (const std::int64_t offset : {-1000 * second, 1000 * second}) {
    const double drift = offset > 0 ? 50e-6 : -50e-6;
    const std::int64_t begin = true_now();
    run_virtual_ranks(2, config, [&](Communicator& world) {
      const auto now = [&]() -> std::int64_t {
        const std::int64_t read = true_now();
        if (world.rank() == 0) {
          std::this_thread::sleep_for(std::chrono::microseconds(100));  // the answer's way
          return read;
        }
        return read + offset + std::llround(drift * static_cast<double>(read - begin));
      };
      ClockFit fit{.begin = measure_clock(world, now), .end = {}};
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
      const std::int64_t between = true_now();  // the bound is for times between measurements
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
      fit.end = measure_clock(world, now);
      if (world.rank() == 0) {
        EXPECT_EQ(fit.aligned(between), between);
        EXPECT_EQ(fit.error(), 0);
      } else {
        const std::int64_t shown =
            between + offset + std::llround(drift * static_cast<double>(between - begin));
        // A question that takes ms sees some hundredths of a microsecond of the drift.
        EXPECT_LE(std::abs(fit.aligned(shown) - between), fit.error() + us);
        EXPECT_GT(fit.error(), tolerable_clock_error_ns);  // so that it is said
      }
    });
  }
}

// Of ten hosts the last asks one that has asked: its bound holds for what it makes of both answers.
TEST(JobClocks, are_within_the_bound_where_hosts_ask_each_other) {
  Config config;
  config.host = "a,b,c,d,e,f,g,h,i,j";
  const std::int64_t begin = true_now();
  run_virtual_ranks(10, config, [&](Communicator& world) {
    const std::int64_t offset = (world.rank() * 37 % 10 - 5) * 100 * second;
    const double drift = world.rank() == 0 ? 0 : (world.rank() % 2 == 0 ? 25e-6 : -25e-6);
    const auto shown_at = [&](std::int64_t time) {
      return time + (world.rank() == 0 ? 0 : offset) +
             std::llround(drift * static_cast<double>(time - begin));
    };
    const auto now = [&] { return shown_at(true_now()); };
    ClockFit fit{.begin = measure_clock(world, now), .end = {}};
    const std::int64_t between = true_now();
    fit.end = measure_clock(world, now);
    // A question that takes ms sees some hundredths of a microsecond of the drift.
    EXPECT_LE(std::abs(fit.aligned(shown_at(between)) - between), fit.error() + us)
        << "rank " << world.rank();
    EXPECT_EQ(fit.error() > 0, world.rank() > 0);
  });
}

TEST_F(TracedJob, has_the_calls_of_all_ranks_and_what_programs_add) {
  config_.host = "a,a,b";
  run_virtual_ranks(3, config_, [&](Communicator& world) {
    std::vector<float> data(1000);
    world.all_reduce(elements(data)).wait();
    world.all_reduce(elements(data)).wait();
    const std::uint64_t flow = 7;
    const auto now = std::chrono::steady_clock::now();
    if (world.rank() < 2) {
      world.tracer()->add({.row = TraceRow::messages,
                           .name = "hand over",
                           .start = now,
                           .end = now + std::chrono::milliseconds(1),
                           .flow = flow,
                           .receives = world.rank() == 1});
    }
    world.write_trace();
  });
  const Json trace = Json::parse(content(config_.trace));
  std::map<int, std::set<std::int64_t>> calls;
  int starts = 0, ends = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] == "all_reduce" && event["args"].value("bytes", 0) == 4000) {
      EXPECT_EQ(event["cat"], "collectives");
      EXPECT_EQ(event["args"]["communicator"], "world");
      EXPECT_NE(event["args"]["algorithm"], "");
      calls[event["pid"]].insert(std::int64_t(event["args"]["sequence"]));
    }
    starts += event["ph"] == "s" ? 1 : 0;
    ends += event["ph"] == "f" ? 1 : 0;
  }
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_EQ(calls[0].size(), 2u);
  EXPECT_EQ(calls[0], calls[1]);
  EXPECT_EQ(calls[0], calls[2]);
  EXPECT_EQ(starts, 1);
  EXPECT_EQ(ends, 1);
  EXPECT_GE(trace["otherData"]["clock_error_us"], 0.0);
  // It was collected, so nobody leaves a part.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(TracedJob, leaves_its_parts_where_nobody_collects_them) {
  run_virtual_ranks(2, config_, [](Communicator& world) { world.barrier(); });
  ASSERT_EQ(jobs().size(), 1u);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(barriers(*jobs().begin(), rank), 1);
  }
}

// As communicators of NCCL are, of which each is a job.
TEST_F(TracedJob, leaves_parts_of_its_own_beside_those_of_other_jobs_of_the_process) {
  const auto calls = [this](int barriers) {
    run_virtual_ranks(2, config_, [&](Communicator& world) {
      for (int call = 0; call < barriers; ++call) {
        world.barrier();
      }
    });
  };
  calls(1);
  std::thread beside([&] { calls(2); });
  calls(3);
  beside.join();
  ASSERT_EQ(jobs().size(), 3u);
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  for (const std::string& job : jobs()) {
    seen.insert({barriers(job, 0), barriers(job, 1)});
  }
  EXPECT_EQ(seen, (std::set<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {2, 2}, {3, 3}}));
}

// mpirun gives variables to the ranks of its own host alone.
TEST(PartlyTracedJob, has_all_ranks_in_its_trace) {
  const comm::Folder folder;
  const std::string path = folder / "t.json";
  comm::SharedMap map;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      comm::MapStore store(map);
      Config config;
      config.rank = rank;
      config.size = 3;
      config.host = "a,b,c";
      config.timeout = std::chrono::seconds(20);
      config.trace = rank == 1 ? path : "";
      Communicator world = Communicator::join(config, store);
      world.barrier();
      EXPECT_NE(world.tracer(), nullptr) << "rank " << rank;
      world.write_trace();
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::set<int> ranks;
  const Json trace = Json::parse(content(path));
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] == "barrier") {
      ranks.insert(int(event["pid"]));
    }
  }
  EXPECT_EQ(ranks, (std::set<int>{0, 1, 2}));
}

TEST_F(TracedJob, leaves_its_parts_when_it_fails) {
  EXPECT_THROW(run_virtual_ranks(2, config_,
                                 [](Communicator& world) {
                                   world.barrier();
                                   if (world.rank() == 1) {
                                     throw std::runtime_error("out of tea");
                                   }
                                   world.barrier();
                                 }),
               std::exception);
  ASSERT_EQ(jobs().size(), 1u);
  EXPECT_GE(barriers(*jobs().begin(), 0), 1);
  EXPECT_GE(barriers(*jobs().begin(), 1), 1);
}

TEST_F(TracedJob, a_file_that_cannot_be_written_is_an_error_on_every_rank) {
  std::array<std::string, 2> said;
  run_virtual_ranks(2, config_, [&](Communicator& world) {
    try {
      world.write_trace((folder_ / "no" / "such" / "folder.json").string());
    } catch (const Error& error) {
      said[static_cast<std::size_t>(world.rank())] = error.what();
    }
  });
  EXPECT_NE(said[0].find("cannot write the trace"), std::string::npos) << said[0];
  EXPECT_EQ(said[0], said[1]);
}

TEST(UntracedJob, has_no_tracer_and_writes_nothing) {
  run_virtual_ranks(2, Config(), [](Communicator& world) {
    EXPECT_EQ(world.tracer(), nullptr);
    world.write_trace("/no/such/folder/t.json");
  });
}

}  // namespace
}  // namespace sprat::collectives
