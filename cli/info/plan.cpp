// `sprat info --plan`: what a rank does in a collective, step by step.
#include "cli/info/plan.hpp"

#include <fmt/core.h>

#include "cli/command.hpp"

namespace sprat::cli {
namespace {

using Json = nlohmann::ordered_json;
using collectives::Algorithm;
using collectives::Cost;
using collectives::Plan;
using collectives::Problem;

const Algorithm& algorithm_of(const PlanRequest& request) {
  std::string known;
  for (const Algorithm* algorithm : collectives::all_algorithms()) {
    if (request.collective == name(algorithm->collective) && request.algorithm == algorithm->name) {
      return *algorithm;
    }
    known += fmt::format("\n  {} {}", name(algorithm->collective), algorithm->name);
  }
  throw UsageError(fmt::format("no algorithm \"{} {}\"; there are:{}", request.collective,
                               request.algorithm, known));
}

Plan plan_of(const PlanRequest& request) {
  return make_plan(problem_of(request), algorithm_of(request));
}

Json json_of(const collectives::Operand& operand) {
  return {{"rank", operand.rank},
          {"buffer", name(operand.buffer)},
          {"block", operand.block},
          {"offset", operand.offset},
          {"count", operand.count}};
}

Json json_of(const Plan& plan, const collectives::Step& step) {
  Json json = {{"verb", name(step.verb)}};
  if (step.peer >= 0) {
    json["peer"] = step.peer;
  }
  if (step.from.count > 0) {
    json["from"] = json_of(step.from);
  }
  for (std::uint32_t i = step.sources.first; i < step.sources.last; ++i) {
    const collectives::Source& source = plan.sources[i];
    json["sources"].push_back(
        {{"from", json_of(source.from)}, {"covers", {source.covers.first, source.covers.last}}});
  }
  if (step.to.count > 0) {
    json["to"] = json_of(step.to);
  }
  if (step.snapshot) {
    json["snapshot"] = true;
  }
  json["needs"] = step.needs;
  json["after"] = {step.after.first, step.after.last};
  if (step.behind.first < step.behind.last) {
    json["behind"] = {step.behind.first, step.behind.last};
  }
  return json;
}

}  // namespace

Problem problem_of(const PlanRequest& request) {
  const int per_host = request.ranks_per_host > 0 ? request.ranks_per_host : request.ranks;
  if (request.ranks < 1 || request.rank < 0 || request.rank >= request.ranks) {
    throw UsageError(fmt::format("there is no rank {} of {}", request.rank, request.ranks));
  }
  std::vector<int> hosts;
  for (int rank = 0; rank < request.ranks; ++rank) {
    hosts.push_back(rank / per_host);
  }
  const Algorithm& algorithm = algorithm_of(request);
  // A barrier moves no elements, whatever --count says.
  const bool counted = algorithm.collective != collectives::Collective::barrier;
  return {.collective = algorithm.collective,
          .rank = request.rank,
          .grouping = std::make_shared<const collectives::Grouping>(hosts),
          .count = counted ? request.count : 0};
}

std::string plan_text(const PlanRequest& request) {
  const Problem problem = problem_of(request);
  const Plan plan = plan_of(request);
  const Cost cost = count(problem, plan);
  return fmt::format(
      "{} of {} f32, rank {} of {} on {} host{}: {} rounds, {} bytes sent, {} received, {} "
      "pulled\n{}",
      request.collective, problem.count, request.rank, request.ranks, problem.grouping->hosts(),
      problem.grouping->hosts() == 1 ? "" : "s", cost.rounds, cost.bytes_sent, cost.bytes_received,
      cost.bytes_pulled, describe(plan));
}

Json plan_json(const PlanRequest& request) {
  const Problem problem = problem_of(request);
  const Plan plan = plan_of(request);
  const Cost cost = count(problem, plan);
  Json json = {{"collective", request.collective},
               {"algorithm", request.algorithm},
               {"ranks", request.ranks},
               {"hosts", problem.grouping->hosts()},
               {"rank", request.rank},
               {"count", problem.count},
               {"dtype", name(problem.input)},
               {"cost",
                {{"rounds", cost.rounds},
                 {"bytes_sent", cost.bytes_sent},
                 {"bytes_received", cost.bytes_received},
                 {"bytes_pulled", cost.bytes_pulled}}},
               {"scratch_count", plan.scratch_count},
               {"contributions_count", plan.contributions_count},
               {"steps", Json::array()}};
  for (const collectives::Step& step : plan.steps) {
    json["steps"].push_back(json_of(plan, step));
  }
  return json;
}

}  // namespace sprat::cli
