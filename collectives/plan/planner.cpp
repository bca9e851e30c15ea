// From a problem to a plan.
#include "collectives/plan/planner.hpp"

#include "comm/base/check.hpp"

namespace sprat::collectives {

// Where blocks differ, other ranks may have elements though this one has none; and a rank that
// deals with a root need not meet the others.
bool only_meets(const Problem& problem) {
  return problem.count == 0 && !problem.counts && !has_root(problem.collective) &&
         !exchanges(problem.collective);
}

// A rule whose algorithm does not fit is passed over: so one rule may speak of all placements
// though its algorithm is for some.
const Algorithm& choose(const Problem& problem, const Rules& rules) {
  for (const Rule& rule : rules) {
    if (applies(rule, problem) && rule.algorithm->fits(problem)) {
      return *rule.algorithm;
    }
  }
  throw Error(ErrorCode::internal,
              text("no rule chooses an algorithm for ", name(problem.collective), " of ",
                   problem.payload_bytes(), " bytes over ", problem.ranks(), " ranks on ",
                   problem.grouping->hosts(), " hosts"));
}

Plan make_plan(const Problem& problem, const Algorithm& algorithm) {
  require(problem.collective == algorithm.collective && algorithm.fits(problem), "algorithm ",
          name(algorithm.collective), " ", algorithm.name, " does not fit ",
          name(problem.collective), " over ", problem.ranks(), " ranks on ",
          problem.grouping->hosts(), " hosts");
  Plan plan(problem);
  plan.algorithm = algorithm.name;
  plan.order = algorithm.order;
  algorithm.plan(problem, plan);
  plan.settle();
  return plan;
}

std::vector<Problem> for_each_rank(const Problem& problem) {
  std::vector<Problem> problems(problem.ranks(), problem);
  for (int rank = 0; rank < problem.ranks(); ++rank) {
    problems[rank].rank = rank;
  }
  return problems;
}

std::vector<Plan> make_plans(const std::vector<Problem>& problems, const Algorithm& algorithm) {
  std::vector<Plan> plans;
  for (const Problem& problem : problems) {
    plans.push_back(make_plan(problem, algorithm));
  }
  return plans;
}

std::vector<Plan> make_plans(const Problem& problem, const Algorithm& algorithm) {
  return make_plans(for_each_rank(problem), algorithm);
}

}  // namespace sprat::collectives
