#include "mp/schedule.hpp"

#include <string>

#include "comm/base/check.hpp"

namespace sprat::mp {

extern const ScheduleKind dualpipe_v, gpipe, interleaved, one_f_one_b, virtual_stages, zb_v,
    zero_bubble_h1;

const std::vector<const ScheduleKind*>& all_schedules() {
  static const std::vector<const ScheduleKind*> table = {
      &dualpipe_v, &gpipe, &interleaved, &one_f_one_b, &virtual_stages, &zb_v, &zero_bubble_h1};
  return table;
}

const ScheduleKind& schedule_named(std::string_view name) {
  std::string names;
  for (const ScheduleKind* kind : all_schedules()) {
    if (name == kind->name || (name == kind->other_name && !name.empty())) {
      return *kind;
    }
    names += text(names.empty() ? "" : ", ", kind->name);
    names += kind->other_name.empty() ? "" : text(" (or ", kind->other_name, ")");
  }
  throw Error(ErrorCode::invalid_argument,
              text("no pipeline schedule \"", name, "\"; there are: ", names));
}

Schedule make_schedule(const ScheduleKind& kind, const PipelineShape& shape) {
  // A number that was mistyped shall be an answer at once, not a machine without memory.
  constexpr std::int64_t most = 1 << 26;
  require(shape.ranks >= 1 && shape.microbatches >= 1 && shape.stages_per_rank >= 1 &&
              shape.active_microbatches >= 0,
          "a pipeline of ", shape.ranks, " ranks with ", shape.stages_per_rank, " stages each, ",
          shape.microbatches, " micro-batches and active_microbatches ", shape.active_microbatches,
          " is none; the first three are 1 or more, the last 0 (as the schedule likes) or more");
  require(shape.ranks <= most / shape.stages_per_rank / shape.microbatches, "a pipeline of ",
          shape.ranks, " ranks with ", shape.stages_per_rank, " stages each and ",
          shape.microbatches, " micro-batches has more than ", most,
          " forwards, which is more than any step; take less");
  const std::string refusal = kind.refusal(shape);
  require(refusal.empty(), refusal);
  return kind.make(shape);
}

}  // namespace sprat::mp
