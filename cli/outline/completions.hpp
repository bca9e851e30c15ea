// Scripts by which shells complete the words of a command line.
#pragma once

#include <string>
#include <vector>

#include "cli/outline/outline.hpp"

namespace sprat::cli {

/// A shell, and where its scripts are looked for.
struct Shell {
  const char* name;
  const char* file;  ///< Below PREFIX/share, as Debian has it
  /// The script for the command that `root` describes, and all below it.
  std::string (*completions)(const CommandOutline& root);
};

/// bash, zsh, fish.
const std::vector<Shell>& shells();

std::string bash_completions(const CommandOutline& root);
std::string zsh_completions(const CommandOutline& root);
std::string fish_completions(const CommandOutline& root);

/// `text` in single quotes, for sh, bash and zsh.
std::string quoted(const std::string& text);

/// What a positional may be: its choices, or for the one COMMAND of `sprat help` and `sprat man`
/// the commands. Those of `sprat launch` are another program's.
std::vector<std::string> words_of(const OptionOutline& positional, const CommandOutline& root);

/// The help text up to its first sentence's end or line's end: lists of completions have one line.
std::string in_one_line(const std::string& help);

}  // namespace sprat::cli
