// Shapes that tests of pipeline schedules go through, and a schedule by hand.
#pragma once

#include <string>
#include <vector>

#include "comm/base/check.hpp"
#include "mp/schedule.hpp"

namespace sprat::mp {

inline std::string words(const PipelineShape& shape) {
  return text(": ", shape.ranks, " ranks, ", shape.microbatches, " micro-batches, ",
              shape.stages_per_rank, " stages a rank");
}

/// Every shape up to these numbers, one to three stages a rank, that the kind has.
inline std::vector<PipelineShape> shapes_of(const ScheduleKind& kind, int ranks, int microbatches) {
  std::vector<PipelineShape> result;
  for (int stages = 1; stages <= 3; ++stages) {
    for (int p = 1; p <= ranks; ++p) {
      for (int m = 1; m <= microbatches; ++m) {
        const PipelineShape shape{.ranks = p, .microbatches = m, .stages_per_rank = stages};
        if (kind.refusal(shape).empty()) {
          result.push_back(shape);
        }
      }
    }
  }
  return result;
}

/// Two messages that are on their way together.
inline Schedule two_sends() {
  return {.name = "by hand",
          .microbatches = 2,
          .rank_of_stage = {0, 1},
          .actions = {{{.op = Op::forward, .stage = 0, .microbatch = 0},
                       {.op = Op::send_forward, .stage = 0, .microbatch = 0},
                       {.op = Op::forward, .stage = 0, .microbatch = 1},
                       {.op = Op::send_forward, .stage = 0, .microbatch = 1}},
                      {{.op = Op::receive_forward, .stage = 1, .microbatch = 0},
                       {.op = Op::receive_forward, .stage = 1, .microbatch = 1}}}};
}

}  // namespace sprat::mp
