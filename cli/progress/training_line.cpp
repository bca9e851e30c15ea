#include "cli/progress/training_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace sprat::cli {
namespace {

constexpr int bar_columns = 20;

/// "[=====>      ]"
std::string bar(int done, int all) {
  // Of a share: the product of a long run's steps has no room in an int.
  const int filled =
      all > 0 ? static_cast<int>(std::int64_t{bar_columns} * std::clamp(done, 0, all) / all) : 0;
  const bool ends = filled == bar_columns;
  return fmt::format("[{:=<{}}{}{: <{}}]", "", filled, ends ? "" : ">", "",
                     bar_columns - filled - (ends ? 0 : 1));
}

}  // namespace

std::vector<LineField> training_line(const train::RunStatus& status) {
  std::vector<LineField> fields{{fmt::format("step {:>{}}/{}", status.step,
                                             std::to_string(status.steps).size(), status.steps),
                                 100},
                                {bar(status.step, status.steps), 10}};
  if (status.loss) {
    fields.push_back({fmt::format("loss {:.4f}", *status.loss), 80});
    fields.push_back({fmt::format("{:.1f}k tokens/s", status.tokens_per_s / 1000), 40});
  }
  if (status.seconds_left) {
    fields.push_back({spelled_age(*status.seconds_left) + " left", 60});
  }
  fields.push_back({status.doing, 50});
  return fields;
}

}  // namespace sprat::cli
