// Completions of bash: one function that finds the command, then offers its words.
#include <fmt/format.h>

#include "cli/outline/completions.hpp"

namespace sprat::cli {
namespace {

std::string joined(const std::vector<std::string>& words, const char* between) {
  return fmt::format("{}", fmt::join(words, between));
}

/// Commands below, options, and what positionals may be.
std::vector<std::string> words_at(const CommandOutline& command, const CommandOutline& root) {
  std::vector<std::string> words;
  for (const CommandOutline& sub : command.commands) {
    words.push_back(sub.name);
  }
  for (const OptionOutline& option : command.options) {
    words.insert(words.end(), option.names.begin(), option.names.end());
  }
  for (const OptionOutline& positional : command.positionals) {
    const std::vector<std::string> choices = words_of(positional, root);
    words.insert(words.end(), choices.begin(), choices.end());
  }
  return words;
}

/// Rows of the case over "PATH OPTION": what stands behind an option that takes a value.
std::string value_rows(const PathOutline& place) {
  std::string rows;
  std::vector<std::string> free;  // Their values are the user's own: names of files are offered.
  for (const OptionOutline& option : place.command->options) {
    if (option.value.empty()) {
      continue;
    }
    for (const std::string& name : option.names) {
      const std::string pattern = quoted(place.path + " " + name);
      if (option.choices.empty()) {
        free.push_back(pattern);
      } else {
        rows += fmt::format("    {}) words={} ;;\n", pattern, quoted(joined(option.choices, " ")));
      }
    }
  }
  return free.empty() ? rows : rows + fmt::format("    {}) return ;;\n", joined(free, " | "));
}

}  // namespace

std::string bash_completions(const CommandOutline& root) {
  std::vector<std::string> below;
  std::string words, values;
  for (const PathOutline& place : paths_of(root)) {
    if (!place.path.empty()) {
      below.push_back(place.path);
    }
    words += fmt::format("    {}) words={} ;;\n", quoted(place.path),
                         quoted(joined(words_at(*place.command, root), " ")));
    values += value_rows(place);
  }
  // A word that neither row of words names is a file's: `complete -o default` offers those where
  // COMPREPLY is empty.
  return fmt::format(R"(# bash completions of {0}, written by `{0} completions bash`.
_{0}() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} path='' words='' word
  COMPREPLY=()
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    [ "$word" = -- ] && return  # what follows is another program's
    case $path/$word in
    {1}) path=$path/$word ;;
    esac
  done
  case $path in
{2}  esac
  case "$path $previous" in
{3}  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
complete -o default -F _{0} {0}
)",
                     root.name, joined(below, " | "), words, values);
}

}  // namespace sprat::cli
