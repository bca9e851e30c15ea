// Every algorithm of the table over every problem of the other table: right, and as costly as it
// says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

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
