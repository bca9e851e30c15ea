// `sprat version`: the version, alone on a line.
#include <fmt/core.h>

#include "cli/command.hpp"
#include "sprat/sprat.h"

namespace sprat::cli {

extern const Command version_command;
const Command version_command = {
    "version",
    "Print the version",
    "Example:\n  sprat version\n",
    [](CLI::App&) -> Action {
      return [] {
        fmt::print("{}\n", sprat_version());
        return 0;
      };
    },
};

}  // namespace sprat::cli
