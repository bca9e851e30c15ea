#include "mp/schedule.hpp"

#include <algorithm>
#include <string>

#include "comm/base/check.hpp"

namespace sprat::mp {

extern const ScheduleKind gpipe;

const std::vector<const ScheduleKind*>& all_schedules() {
  static const std::vector<const ScheduleKind*> table = {&gpipe};
  return table;
}

const ScheduleKind& schedule_named(std::string_view name) {
  const auto& table = all_schedules();
  const auto found = std::ranges::find(table, name, &ScheduleKind::name);
  std::string names;
  for (const ScheduleKind* kind : table) {
    names += names.empty() ? "" : ", ";
    names += kind->name;
  }
  require(found != table.end(), "no pipeline schedule \"", name, "\"; there are: ", names);
  return **found;
}

Schedule make_schedule(const ScheduleKind& kind, const PipelineShape& shape) {
  const std::string refusal = kind.refusal(shape);
  require(refusal.empty(), refusal);
  return kind.make(shape);
}

}  // namespace sprat::mp
