// Completions of zsh: one function a command, which hands the rest of the line to those below it.
#include <fmt/format.h>

#include <algorithm>

#include "cli/outline/completions.hpp"

namespace sprat::cli {
namespace {

/// In what stands between brackets or colons of a specification those end it, unless a backslash
/// stands before.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char letter : text) {
    result += (letter == ':' || letter == '[' || letter == ']' || letter == '\\' ? "\\" : "");
    result += letter;
  }
  return result;
}

std::string function_of(const std::string& root, const std::string& path) {
  std::string name = "_" + root + path;
  std::ranges::replace(name, '/', '_');
  return name;
}

/// ":MESSAGE:ACTION" of a value.
std::string value_of(const std::string& message, const std::vector<std::string>& choices) {
  return fmt::format(":{}:{}", escaped(message),
                     choices.empty() ? "_files" : fmt::format("({})", fmt::join(choices, " ")));
}

std::string option_rows(const CommandOutline& command) {
  std::string rows;
  for (const OptionOutline& option : command.options) {
    for (const std::string& name : option.names) {
      const std::string value = option.value.empty() ? "" : value_of(option.value, option.choices);
      rows += fmt::format(
          " \\\n    {}",
          quoted(fmt::format("{}[{}]{}", name, escaped(in_one_line(option.help)), value)));
    }
  }
  return rows;
}

std::string positional_rows(const CommandOutline& command, const CommandOutline& root) {
  std::string rows;
  for (const OptionOutline& positional : command.positionals) {
    rows += fmt::format(" \\\n    {}",
                        quoted((positional.repeats ? "*" : "") +
                               value_of(positional.names.front(), words_of(positional, root))));
  }
  // What launchers start, and files that no positional names.
  return rows.find("'*:") == std::string::npos ? rows + " \\\n    '*:FILE:_files'" : rows;
}

/// What a command does that has others below it: offers their names, then calls theirs.
std::string dispatch(const PathOutline& place, const CommandOutline& root) {
  std::string names, calls;
  for (const CommandOutline& sub : place.command->commands) {
    names += " " + quoted(escaped(sub.name) + ":" + in_one_line(sub.summary));
    calls += fmt::format("    {}) {} ;;\n", sub.name,
                         function_of(root.name, place.path + "/" + sub.name));
  }
  return fmt::format(R"(  local state line
  local -a commands=({})
  _arguments -C{} \
    '1: :->command' '*:: :->rest'
  case $state in
  command) _describe command commands ;;
  rest)
    case $words[1] in
{}    esac ;;
  esac
)",
                     names, option_rows(*place.command), calls);
}

}  // namespace

std::string zsh_completions(const CommandOutline& root) {
  std::string functions;
  for (const PathOutline& place : paths_of(root)) {
    functions += fmt::format("{}() {{\n{}}}\n", function_of(root.name, place.path),
                             place.command->commands.empty()
                                 ? "  _arguments" + option_rows(*place.command) +
                                       positional_rows(*place.command, root) + "\n"
                                 : dispatch(place, root));
  }
  return fmt::format(
      "#compdef {0}\n# zsh completions of {0}, written by `{0} completions zsh`.\n{1}_{0} \"$@\"\n",
      root.name, functions);
}

}  // namespace sprat::cli
