// How cores are shared out on made-up machines.
#include "io/cores/core_plan.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "tests/unit/io/temporary_folder.hpp"

namespace sprat::io {
namespace {

struct CorePlanCase {
  const char* name;
  CoreFacts facts;
  CoreWishes wishes;
  double cores;
  int read, decode;
};

TEST(CorePlan, is_what_is_left_to_a_rank) {
  const std::vector<CorePlanCase> cases = {
      CorePlanCase{"alone", {.host = 16, .allowed = 16}, {}, 16, 4, 4},
      {"small", {.host = 2, .allowed = 2}, {.ranks_on_host = 2}, 1, 1, 1},
      {"shared", {.host = 96, .allowed = 96}, {.ranks_on_host = 8}, 12, 3, 3},
      {"bound", {.host = 96, .allowed = 12}, {.ranks_on_host = 8}, 12, 3, 3},
      {"more ranks than cores", {.host = 4, .allowed = 4}, {.ranks_on_host = 8}, 0.5, 1, 1},
      {"a quota", {.host = 64, .allowed = 64, .quota = 8}, {.ranks_on_host = 2}, 4, 1, 1},
      {"a quota that is more", {.host = 8, .allowed = 8, .quota = 100}, {}, 8, 2, 2},
      {"part of a core", {.host = 8, .allowed = 8, .quota = 0.5}, {}, 0.5, 1, 1},
      {"wishes", {.host = 8, .allowed = 8}, {.read_threads = 7, .decode_threads = 3}, 8, 7, 3},
  };
  for (const CorePlanCase& one : cases) {
    const CorePlan plan = plan_cores(one.facts, one.wishes);
    EXPECT_DOUBLE_EQ(plan.cores, one.cores) << one.name;
    EXPECT_EQ(plan.read_threads, one.read) << one.name;
    EXPECT_EQ(plan.decode_threads, one.decode) << one.name;
  }
}

void write_text(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

TEST(CoreFacts, have_the_least_quota_on_the_way_up_in_either_version) {
  const TemporaryFolder folder;
  const auto quota = [&](const std::string& membership) {
    write_text(folder / "membership", membership);
    return own_core_facts(folder / "root", folder / "membership").quota;
  };
  write_text(folder / "root/job/cpu.max", "400000 100000\n");
  write_text(folder / "root/job/rank/cpu.max", "max 100000\n");
  EXPECT_EQ(quota("0::/job/rank\n"), 4.0);
  write_text(folder / "root/cpu.max", "150000 100000\n");
  EXPECT_EQ(quota("0::/job/rank\n"), 1.5);
  EXPECT_EQ(quota("0::/\n"), 1.5);
  write_text(folder / "root/cpu/job/cpu.cfs_quota_us", "50000\n");
  write_text(folder / "root/cpu/job/cpu.cfs_period_us", "100000\n");
  write_text(folder / "root/cpu/cpu.cfs_quota_us", "-1\n");
  write_text(folder / "root/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota("4:cpu,cpuacct:/job\n3:memory:/job\n"), 0.5);
  EXPECT_EQ(quota("4:memory:/job\n"), std::nullopt);
  EXPECT_EQ(quota(""), std::nullopt);
}

TEST(CoreFacts, are_those_of_this_machine) {
  const CoreFacts facts = own_core_facts();
  EXPECT_GE(facts.host, 1);
  EXPECT_GE(facts.allowed, 1);
  EXPECT_LE(facts.allowed, facts.host);
}

}  // namespace
}  // namespace sprat::io
