#include "cli/outline/completions.hpp"

namespace sprat::cli {

const std::vector<Shell>& shells() {
  static const std::vector<Shell> all = {
      {"bash", "bash-completion/completions/sprat", bash_completions},
      {"zsh", "zsh/vendor-completions/_sprat", zsh_completions},
      {"fish", "fish/vendor_completions.d/sprat.fish", fish_completions}};
  return all;
}

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char letter : text) {
    // A quote ends the string, stands outside it, and begins the next.
    result += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  }
  return result + "'";
}

std::vector<std::string> words_of(const OptionOutline& positional, const CommandOutline& root) {
  if (positional.names.front() != "COMMAND" || positional.repeats || !positional.choices.empty()) {
    return positional.choices;
  }
  std::vector<std::string> names;
  for (const CommandOutline& command : root.commands) {
    names.push_back(command.name);
  }
  return names;
}

std::string in_one_line(const std::string& help) {
  std::string line = help.substr(0, help.find('\n'));
  if (const std::size_t end = line.find(". "); end != std::string::npos) {
    line.resize(end);
  }
  return line;
}

}  // namespace sprat::cli
