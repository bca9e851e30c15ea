// From a problem to a plan.
#include "collectives/planner.hpp"

#include "comm/base/check.hpp"

namespace sprat::collectives {

const Algorithm& choose(const Problem& problem, const Rules& rules) {
  for (const Rule& rule : rules) {
    if (applies(rule, problem) && rule.algorithm->fits(problem)) return *rule.algorithm;
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
  algorithm.plan(problem, plan);
  return plan;
}

}  // namespace sprat::collectives
