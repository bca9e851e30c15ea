// The rows of this host's jobs as text that fits a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli/top/rows.hpp"

namespace sprat::cli {

struct TableSpace {
  std::size_t columns = 0, lines = 0;  ///< 0: as many as it takes.
};

/// Lines without their ends, none wider than there are columns. What has no room is left out, the
/// least important columns first; of lines that have none the last one says how many.
std::vector<std::string> table_of(const HostRows& rows, const TableSpace& space);

}  // namespace sprat::cli
