// `sprat completions SHELL`: a script by which a shell completes commands and options.
#include "cli/outline/completions.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.hpp"

namespace sprat::cli {
namespace {

Action prepare_completions(CLI::App& app) {
  auto wanted = std::make_shared<std::string>();
  std::vector<std::string> names;
  for (const Shell& shell : shells()) {
    names.emplace_back(shell.name);
  }
  app.add_option("SHELL", *wanted, "Whose completions to print")
      ->required()
      ->check(CLI::IsMember(names));
  return [&app, wanted] {
    for (const Shell& shell : shells()) {
      if (*wanted == shell.name) {
        fmt::print("{}", shell.completions(outline_of(*app.get_parent())));
      }
    }
    return 0;
  };
}

}  // namespace

extern const Command completions_command;
const Command completions_command = {
    "completions",
    "Print the completions of bash, zsh or fish",
    R"(They come from the options themselves, so they are those of this version. Debian's package has them already.

Examples:
  source <(sprat completions bash)                 in this shell; in ~/.bashrc for all
  sprat completions zsh > ~/.zfunc/_sprat          with fpath+=~/.zfunc before compinit in ~/.zshrc
  sprat completions fish > ~/.config/fish/completions/sprat.fish
)",
    prepare_completions,
};

}  // namespace sprat::cli
