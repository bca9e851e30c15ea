// The commands with their options as values, read from what CLI11 parses by; completions and man
// pages are made of them.
#pragma once

#include <string>
#include <vector>

#include "cli/command.hpp"

namespace sprat::cli {

struct OptionOutline {
  std::vector<std::string> names;  ///< "--steps", "-n"; of a positional the one name, "CONFIG"
  std::string value;  ///< What `--help` calls its value: "INT", "[PATH]"; empty for a flag
  std::vector<std::string> choices;  ///< The only values that it takes, where it says so
  std::string help;
  bool required = false;
  bool repeats = false;  ///< Takes several values
};

struct CommandOutline {
  std::string name, summary, lesson;
  std::vector<OptionOutline> options, positionals;
  std::vector<CommandOutline> commands;
};

/// Everything that `app` parses, in its order, without what it hides. Names of hidden options stay
/// valid.
CommandOutline outline_of(const CLI::App& app);

/// Each command's path from the root, "" first, then "/io", "/io/index": a parent stands before its
/// children.
struct PathOutline {
  std::string path;
  const CommandOutline* command;
};
/// Points into `root`, which must outlive it.
std::vector<PathOutline> paths_of(const CommandOutline& root);

/// "--steps INT", as a synopsis shows it.
std::string spelling_of(const OptionOutline& option);

}  // namespace sprat::cli
