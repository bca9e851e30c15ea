// Every algorithm of the table over every problem of the other table: right, and as costly as it
// says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <vector>

#include "collectives/plan/algorithm.hpp"
#include "collectives/plan/planner.hpp"
#include "collectives/verify/verifier.hpp"
#include "tests/unit/collectives/plan/problem_table.hpp"

namespace sprat::collectives {

// For failure messages.
void PrintTo(const Cost& cost, std::ostream* out) {
  *out << cost.rounds << " rounds, " << cost.bytes_sent << " bytes sent, " << cost.bytes_received
       << " received, " << cost.bytes_pulled << " pulled";
}

namespace {

using ::testing::IsEmpty;

class Algorithms : public ::testing::TestWithParam<const Algorithm*> {};

INSTANTIATE_TEST_SUITE_P(Each, Algorithms, ::testing::ValuesIn(all_algorithms()),
                         [](const ::testing::TestParamInfo<const Algorithm*>& entry) {
                           return std::string(name(entry.param->collective)) + "_" +
                                  entry.param->name;
                         });

TEST_P(Algorithms, are_right_in_place_and_not) {
  for_each_case(*GetParam(), [](const Case& c) {
    const std::vector<Plan> plans = make_plans(c.each, *GetParam());
    EXPECT_THAT(verify(c.each, plans, false), IsEmpty()) << c.label;
    if (may_alias(c.problem)) {
      EXPECT_THAT(verify(c.each, plans, true), IsEmpty()) << c.label << ", in place";
    }
  });
}

TEST_P(Algorithms, cost_what_their_plans_count) {
  for_each_case(*GetParam(), [](const Case& c) {
    for (const Problem& problem : c.each) {
      EXPECT_EQ(GetParam()->cost(problem), count(problem, make_plan(problem, *GetParam())))
          << c.label << ", rank " << problem.rank;
    }
  });
}

// By that, and not by its own plan, a rank knows how all cut a call.
TEST_P(Algorithms, say_whether_some_rank_reads_a_copy) {
  bool some = false;
  for_each_case(*GetParam(), [&](const Case& c) {
    for (const Problem& problem : c.each) {
      some |= make_plan(problem, *GetParam()).traits.snapshot;
    }
  });
  EXPECT_EQ(GetParam()->snapshots, some);
}

/// What the algorithm costs rank 0 of `hosts`, whose plans count the same.
Cost cost_of(const Algorithm& algorithm, const std::vector<int>& hosts, DType dtype, int root = 0) {
  const Problem problem = {.collective = algorithm.collective,
                           .grouping = std::make_shared<const Grouping>(hosts),
                           .count = 1000,
                           .input = dtype,
                           .output = dtype,
                           .root = root};
  const Cost cost = algorithm.cost(problem);
  EXPECT_EQ(cost, count(problem, make_plan(problem, algorithm))) << algorithm.name;
  return cost;
}

TEST(Contributions, of_one_rank_travel_in_their_own_type) {
  for (const Algorithm* algorithm : all_algorithms()) {
    if (!reduces(algorithm->collective)) {
      continue;
    }
    Problem two_hosts;
    two_hosts.grouping = std::make_shared<const Grouping>(std::vector<int>{0, 1});
    if (!algorithm->fits(two_hosts)) {
      continue;  // on one host only
    }
    for (const int root : {0, 1}) {
      const Cost wide = cost_of(*algorithm, {0, 1}, DType::f32, root);
      const Cost half = cost_of(*algorithm, {0, 1}, DType::bf16, root);
      const Cost quarter = cost_of(*algorithm, {0, 1}, DType::f8e4m3, root);
      EXPECT_GT(wide.bytes_sent + wide.bytes_received, 0u) << algorithm->name;
      EXPECT_EQ(2 * half.bytes_sent, wide.bytes_sent) << algorithm->name;
      EXPECT_EQ(2 * half.bytes_received, wide.bytes_received) << algorithm->name;
      EXPECT_EQ(4 * quarter.bytes_sent, wide.bytes_sent) << algorithm->name;
      EXPECT_EQ(4 * quarter.bytes_received, wide.bytes_received) << algorithm->name;
    }
  }
}

TEST(Contributions, of_several_ranks_travel_as_partials) {
  const Algorithm& reduce = *find_algorithm(Collective::reduce, "hierarchical");
  // Of ((0+1)+(2+3)) the second host has 1 and 2+3.
  EXPECT_EQ(cost_of(reduce, {0, 1, 1, 1}, DType::bf16).bytes_received, 1000u * (2 + 4));
  EXPECT_EQ(cost_of(reduce, {0, 1, 1, 1}, DType::bf16, 1).bytes_sent, 1000u * 2);
  EXPECT_EQ(cost_of(reduce, {0, 0, 1, 1}, DType::bf16).bytes_received, 1000u * 4);
  EXPECT_EQ(cost_of(reduce, {0, 0, 1, 1}, DType::bf16, 2).bytes_sent, 1000u * 4);
  const Algorithm& ring = *find_algorithm(Collective::reduce_scatter, "ring");
  // Rank 0 begins the line of rank 1's block and goes on with that of rank 2's.
  EXPECT_EQ(cost_of(ring, {0, 1, 2}, DType::bf16).bytes_sent, 1000u * (2 + 4));
}

// Of a reduce only the root knows the output's type.
TEST(Contributions, to_a_root_are_cut_alike_whatever_it_makes_of_them) {
  const Algorithm& reduce = *find_algorithm(Collective::reduce, "hierarchical");
  Problem problem = {.collective = Collective::reduce,
                     .rank = 1,
                     .grouping = std::make_shared<const Grouping>(std::vector<int>{0, 1}),
                     .count = 1'000'000,
                     .input = DType::bf16,
                     .output = DType::bf16};
  const std::string narrow = describe(make_plan(problem, reduce));
  problem.output = DType::f32;
  EXPECT_EQ(describe(make_plan(problem, reduce)), narrow);
}

TEST(AlgorithmTable, lists_the_files_of_the_folder) {
  const auto folder = std::filesystem::path(SPRAT_SOURCE_DIR) / "collectives/algorithms";
  std::set<std::string> files, listed;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".cpp") {
      files.insert(entry.path().filename().string());
    }
  }
  for (const Algorithm* algorithm : all_algorithms()) {
    listed.insert(std::string(name(algorithm->collective)) + "_" + algorithm->name + ".cpp");
  }
  EXPECT_EQ(listed, files);
}

TEST(AlgorithmTable, finds_by_collective_and_name) {
  for (const Algorithm* algorithm : all_algorithms()) {
    EXPECT_EQ(find_algorithm(algorithm->collective, algorithm->name), algorithm);
  }
  EXPECT_EQ(find_algorithm(Collective::barrier, "ring"), nullptr);
}

}  // namespace
}  // namespace sprat::collectives
