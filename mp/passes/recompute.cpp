// A second forward right before the backward that needs its tape.

#include "mp/actions.hpp"
#include "mp/passes/passes.hpp"

namespace sprat::mp {

Schedule recompute(const Schedule& schedule,
                   const std::function<bool(int stage, int microbatch)>& dropped) {
  Schedule result = schedule;
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    result.actions[rank].clear();
    for (const Action& action : schedule.actions[rank]) {
      // The second half of a backward finds the tape that the first needed.
      for (const Action& part : parts_of(action)) {
        if (gives_input_gradient(part.op) && dropped(part.stage, part.microbatch)) {
          result.actions[rank].push_back(
              {.op = Op::recompute, .stage = part.stage, .microbatch = part.microbatch});
        }
      }
      result.actions[rank].push_back(action);
    }
  }
  return result;
}

}  // namespace sprat::mp
