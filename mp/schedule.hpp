// The table of schedules. A schedule is data (sprat/pipeline.hpp): what each rank does, in which
// order. Generators make the computation, passes insert what moves or frees memory, and the
// validator, the simulator, the drawing and the engine all read it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sprat/pipeline.hpp"

namespace sprat::mp {

/// A row of the table: one file of mp/schedules/.
struct ScheduleKind {
  std::string_view name;     ///< "1f1b"
  std::string_view summary;  ///< One clause for --help.
  /// Why no schedule of this kind has this shape, with the values and the nearest that works;
  /// empty: it has.
  std::string (*refusal)(const PipelineShape&);
  /// Computation only: forward, backward*, overlap. Called if there is no refusal.
  Schedule (*make)(const PipelineShape&);
  std::string_view other_name = {};  ///< That schedule_named takes, too; none if empty.
};

/// The table, in the order of the files.
const std::vector<const ScheduleKind*>& all_schedules();
/// Throws Error{invalid_argument} naming those there are.
const ScheduleKind& schedule_named(std::string_view name);
/// Throws Error{invalid_argument} if the numbers are no shape, and with the kind's refusal.
Schedule make_schedule(const ScheduleKind& kind, const PipelineShape& shape);

}  // namespace sprat::mp
