// Reductions as soon as a stage has all its gradients.
#include <map>

#include "mp/actions.hpp"
#include "mp/passes/passes.hpp"

namespace sprat::mp {

Schedule reduce(const Schedule& schedule) {
  std::map<int, int> left;  // contributions to come, by stage
  for (const auto& actions : schedule.actions) {
    for (const Action& action : actions) {
      for (const Action& part : parts_of(action)) {
        left[part.stage] += gives_weight_gradient(part.op) ? 1 : 0;
      }
    }
  }
  Schedule result = schedule;
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    result.actions[rank].clear();
    for (const Action& action : schedule.actions[rank]) {
      result.actions[rank].push_back(action);
      // At once, so that it goes on beside what other stages still compute.
      for (const Action& part : parts_of(action)) {
        if (gives_weight_gradient(part.op) && --left[part.stage] == 0) {
          result.actions[rank].push_back({.op = Op::reduce, .stage = part.stage});
        }
      }
    }
  }
  return result;
}

}  // namespace sprat::mp
