// The shapes that tests of pipeline schedules go through.
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

}  // namespace sprat::mp
