// What this host's ranks have done so far, in Prometheus' text form.
#pragma once

#include <string>
#include <string_view>

#include "cli/top/look.hpp"

namespace sprat::cli {

/// Counters since each rank joined, and what is so now; docs/watching.md lists the names.
std::string metrics_of(const HostLook& look);
/// As the value of a label: backslashes, quotes and ends of lines are escaped.
std::string label_value(std::string_view text);

}  // namespace sprat::cli
