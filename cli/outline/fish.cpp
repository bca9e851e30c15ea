// Completions of fish: one row an option, each for the command that stands on the line.
#include <fmt/format.h>

#include <algorithm>

#include "cli/outline/completions.hpp"

namespace sprat::cli {
namespace {

/// In fish's single quotes a backslash stands before quotes and backslashes.
std::string fish_quoted(const std::string& text) {
  std::string result = "'";
  for (const char letter : text) {
    result += (letter == '\'' || letter == '\\' ? "\\" : "");
    result += letter;
  }
  return result + "'";
}

std::string option_row(const OptionOutline& option, const std::string& start) {
  std::string row = start;
  for (const std::string& name : option.names) {
    row += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  row += " -d " + fish_quoted(in_one_line(option.help));
  if (!option.choices.empty()) {
    row += fmt::format(" -x -a {}", fish_quoted(fmt::format("{}", fmt::join(option.choices, " "))));
  } else if (!option.value.empty()) {
    row += " -r";  // a file, or the user's own
  }
  return row + "\n";
}

std::string rows_at(const PathOutline& place, const CommandOutline& root) {
  const std::string start = fmt::format("complete -c {0} -n '__{0}_at {1}'", root.name,
                                        place.path.empty() ? "/" : place.path);
  std::string rows;
  for (const CommandOutline& sub : place.command->commands) {
    rows +=
        fmt::format("{} -f -a {} -d {}\n", start, sub.name, fish_quoted(in_one_line(sub.summary)));
  }
  for (const OptionOutline& option : place.command->options) {
    rows += option_row(option, start);
  }
  for (const OptionOutline& positional : place.command->positionals) {
    const std::vector<std::string> words = words_of(positional, root);
    if (!words.empty()) {
      rows += fmt::format("{} -f -a {}\n", start,
                          fish_quoted(fmt::format("{}", fmt::join(words, " "))));
    }
  }
  return rows;
}

}  // namespace

std::string fish_completions(const CommandOutline& root) {
  std::string below, rows;
  for (const PathOutline& place : paths_of(root)) {
    below += place.path.empty() ? "" : " " + place.path;
    rows += rows_at(place, root);
  }
  return fmt::format(R"(# fish completions of {0}, written by `{0} completions fish`.
# Whether the line has come to this command, as /io/index; / where it has come to none.
function __{0}_at
    set -l path
    for word in (commandline -opc)[2..-1]
        switch "$path/$word"
            case{1}
                set path "$path/$word"
        end
    end
    test "$path" = (string trim -r -c / -- $argv[1])
end
{2})",
                     root.name, below, rows);
}

}  // namespace sprat::cli
