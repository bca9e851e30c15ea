// `sprat info --plan`: both forms tell the same plan, and wrong requests what there is.
#include "cli/info/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/command.hpp"

namespace sprat::cli {
namespace {

using testing::HasSubstr;

TEST(InfoPlan, has_a_line_and_an_object_for_each_step_of_every_algorithm) {
  for (const collectives::Algorithm* algorithm : collectives::all_algorithms()) {
    for (int per_host : {0, 2}) {
      const PlanRequest request{.collective = name(algorithm->collective),
                                .algorithm = algorithm->name,
                                .ranks = 4,
                                .ranks_per_host = per_host,
                                .count = 500,
                                .rank = 3};
      const collectives::Problem problem = problem_of(request);
      if (!algorithm->fits(problem)) {
        continue;
      }
      const std::size_t steps = make_plan(problem, *algorithm).steps.size();
      const std::string text = plan_text(request);
      EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), steps + 2) << text;
      EXPECT_EQ(plan_json(request)["steps"].size(), steps) << text;
    }
  }
}

TEST(InfoPlan, shows_who_sends_what_to_whom) {
  const PlanRequest request{
      .collective = "all_gather", .algorithm = "hierarchical", .ranks = 8, .ranks_per_host = 4};
  EXPECT_THAT(plan_text(request),
              HasSubstr("all_gather of 1024 f32, rank 0 of 8 on 2 hosts: 2 rounds, 4096 bytes "
                        "sent, 4096 received, 24576 pulled"));
  EXPECT_THAT(plan_text(request), HasSubstr("send   peer 4"));
  bool sends = false;
  const auto plan = plan_json(request);
  for (const auto& step : plan["steps"]) {
    sends |= step["verb"] == "send" && step["peer"] == 4 && step["from"]["count"] == 1024;
  }
  EXPECT_TRUE(sends);
}

/// Largest offset + count of a rank's own buffer in the steps, wherever they use it.
std::size_t end_of(const nlohmann::ordered_json& plan, const char* buffer) {
  std::size_t end = 0;
  for (const auto& step : plan["steps"]) {
    for (const char* operand : {"from", "to"}) {
      if (step.contains(operand) && step[operand]["buffer"] == buffer) {
        end = std::max(end, step[operand]["offset"].get<std::size_t>() +
                                step[operand]["count"].get<std::size_t>());
      }
    }
  }
  return end;
}

TEST(InfoPlan, tells_the_size_of_every_buffer_of_the_ranks_own) {
  const auto plan = plan_json({.collective = "all_reduce",
                               .algorithm = "hierarchical",
                               .ranks = 4,
                               .ranks_per_host = 1,
                               .count = 500});
  EXPECT_GT(end_of(plan, "contributions"), 0u) << plan.dump();
  EXPECT_LE(end_of(plan, "contributions"), plan["contributions_count"].get<std::size_t>());
  EXPECT_LE(end_of(plan, "scratch"), plan["scratch_count"].get<std::size_t>());
}

TEST(InfoPlan, answers_a_wrong_request_with_what_there_is) {
  const std::vector<std::pair<PlanRequest, const char*>> table = {
      {{.collective = "all_gather", .algorithm = "best", .ranks = 8}, "all_gather hierarchical"},
      {{.collective = "gossip", .algorithm = "ring", .ranks = 8}, "no algorithm \"gossip ring\""},
      {{.collective = "all_gather", .algorithm = "direct", .ranks = 8, .rank = 8},
       "no rank 8 of 8"},
      {{.collective = "all_gather", .algorithm = "direct", .ranks = 0}, "no rank 0 of 0"},
  };
  for (const auto& [request, answer] : table) {
    try {
      plan_text(request);
      ADD_FAILURE() << answer;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(answer));
    }
  }
}

}  // namespace
}  // namespace sprat::cli
