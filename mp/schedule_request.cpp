// What users ask of schedules: one by name with its passes, an evaluation, one rank's part.
#include <algorithm>
#include <string>
#include <vector>

#include "comm/base/check.hpp"
#include "mp/actions.hpp"
#include "mp/passes/passes.hpp"
#include "mp/schedule.hpp"
#include "mp/validate.hpp"

namespace sprat::mp {

std::vector<std::string> schedule_kinds() {
  std::vector<std::string> names;
  for (const ScheduleKind* kind : all_schedules()) {
    names.emplace_back(kind->name);
  }
  return names;
}

Schedule make_schedule(const ScheduleRequest& request) {
  Schedule schedule = make_schedule(schedule_named(request.kind), request.shape);
  const std::vector<bool>& recomputed = request.recomputed;
  require(recomputed.empty() || int(recomputed.size()) == schedule.stages(),
          "recomputation is said of ", recomputed.size(), " stages, but ", schedule.name, " over ",
          request.shape.ranks, " ranks has ", schedule.stages(), "; say it of each, or of none");
  // In the order that passes.hpp says: what comes later sees what was put in before.
  if (!recomputed.empty()) {
    schedule =
        recompute(schedule, [&](int stage, int) { return bool(recomputed[std::size_t(stage)]); });
  }
  if (request.offload) {
    schedule = offload(schedule, *request.offload);
  }
  if (request.reduces) {
    schedule = reduce(schedule);
  }
  return request.unsharded_stages == 0 ? schedule : unshard(schedule, request.unsharded_stages);
}

Schedule evaluation_of(const Schedule& schedule, int unsharded_stages) {
  // Each rank keeps the order of its forwards, which has run already when a step was trained.
  Schedule result = schedule;
  result.name = schedule.name + ", forwards";
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    result.actions[rank].clear();
    for (const Action& action : schedule.actions[rank]) {
      for (const Action& part : parts_of(action)) {
        if (part.op == Op::forward) {
          result.actions[rank].push_back(part);
        }
      }
    }
  }
  return unsharded_stages == 0 ? result : unshard(result, unsharded_stages);
}

std::vector<Action> computations_of(const Schedule& schedule, int rank) {
  require(rank >= 0 && rank < schedule.ranks(), "rank ", rank, " has no part in ", schedule.name,
          ", which has ", schedule.ranks(), " ranks, from 0 on");
  std::vector<Action> computations;
  for (const Action& action : schedule.actions[std::size_t(rank)]) {
    for (const Action& part : parts_of(action)) {
      if (is_computation(part.op)) {
        computations.push_back(part);
      }
    }
  }
  return computations;
}

int most_microbatches_held(const Schedule& schedule, int rank) {
  require(rank >= 0 && rank < schedule.ranks(), "rank ", rank, " has no part in ", schedule.name,
          ", which has ", schedule.ranks(), " ranks, from 0 on");
  return peak_microbatches(schedule)[std::size_t(rank)];
}

}  // namespace sprat::mp
