// A command of `sprat io`: a row of its table.
#pragma once

#include "cli/command.hpp"

namespace sprat::cli {

struct IoCommand {
  const char* name;
  const char* summary;  ///< One line.
  const char* lesson;   ///< What its --help teaches, with examples.
  /// Adds the options to `app`. The Action is called after parsing.
  Action (*prepare)(CLI::App& app);
};

}  // namespace sprat::cli
