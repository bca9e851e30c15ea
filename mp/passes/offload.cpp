// Tapes on their way to a tier and back.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "comm/base/check.hpp"
#include "mp/actions.hpp"
#include "mp/passes/passes.hpp"
#include "mp/text.hpp"

namespace sprat::mp {
namespace {

using Tape = std::pair<int, int>;  // stage, micro-batch

struct Moves {
  std::map<std::size_t, std::vector<Action>> before, behind;  ///< By place of the rank's action.
};

/// Where one rank's tapes leave and come back.
Moves moves_of(const std::vector<Action>& actions, const Offload& how) {
  std::vector<std::size_t> computations;                     // their places
  std::map<Tape, std::pair<std::size_t, std::size_t>> made;  // as the how-manieth, after forwards
  std::size_t forwards = 0;
  Moves moves;
  for (std::size_t place = 0; place < actions.size(); ++place) {
    for (const Action& part : parts_of(actions[place])) {
      const Tape tape{part.stage, part.microbatch};
      if (part.op == Op::forward) {
        made[tape] = {computations.size(), ++forwards};
      } else if (part.op == Op::recompute || gives_input_gradient(part.op)) {
        const auto found = made.find(tape);
        if (found == made.end()) {
          continue;  // loaded for its recomputation already
        }
        const auto [forward, count] = found->second;
        made.erase(found);
        const std::size_t now = computations.size(), horizon = std::size_t(how.horizon);
        // Loads start where at least one computation lies behind the store, or it saved nothing.
        if (forwards - count < std::size_t(how.keep_last) || now < forward + horizon + 2) {
          continue;
        }
        const Action move{.op = Op::store, .stage = part.stage, .microbatch = part.microbatch};
        moves.behind[computations[forward]].push_back(move);
        const std::size_t at = horizon == 0 ? place : computations[now - horizon];
        moves.before[at].push_back(move);
        moves.before[at].back().op = Op::load;
      }
    }
    if (is_computation(actions[place].op)) {
      computations.push_back(place);
    }
  }
  return moves;
}

}  // namespace

Schedule offload(const Schedule& schedule, const Offload& how) {
  require(how.horizon >= 0 && how.keep_last >= 0, "a horizon of ", how.horizon,
          " computations and ", how.keep_last, " tapes that stay are no numbers; take 0 or more");
  Schedule result = schedule;
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    const auto& actions = schedule.actions[rank];
    for (const Action& action : actions) {
      require(action.op != Op::store && action.op != Op::load, "rank ", rank, " has ",
              to_text(action), ": the schedule moves tapes already");
    }
    Moves moves = moves_of(actions, how);
    auto& moved = result.actions[rank];
    moved.clear();
    for (std::size_t place = 0; place < actions.size(); ++place) {
      const auto& loads = moves.before[place];
      const auto& stores = moves.behind[place];
      moved.insert(moved.end(), loads.begin(), loads.end());
      moved.push_back(actions[place]);
      moved.insert(moved.end(), stores.begin(), stores.end());
    }
  }
  return result;
}

}  // namespace sprat::mp
