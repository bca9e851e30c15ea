// `sprat man [COMMAND]`: manual pages, from the texts of --help.
#include "cli/outline/man.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "cli/outline/completions.hpp"
#include "sprat/sprat.h"

namespace sprat::cli {
namespace {

namespace fs = std::filesystem;

void write_file(const fs::path& file, const std::string& text) {
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  std::ofstream out(file);
  out << text << std::flush;
  if (!out) {
    throw std::runtime_error("cannot write " + file.string() +
                             ": is it a folder of yours, with room?");
  }
}

/// What packages put below PREFIX/share.
void write_share(const CommandOutline& root, const fs::path& share) {
  for (const ManPage& page : man_pages(root, sprat_version())) {
    write_file(share / "man/man1" / (page.name + ".1"), page.text);
  }
  for (const Shell& shell : shells()) {
    write_file(share / shell.file, shell.completions(root));
  }
}

Action prepare_man(CLI::App& app) {
  auto command = std::make_shared<std::string>();
  auto share = std::make_shared<std::string>();
  app.add_option("COMMAND", *command, "Whose page to print; else that of sprat");
  app.add_option("--write", *share, "Write all pages and all completions below this PREFIX/share");
  return [&app, command, share] {
    const CommandOutline root = outline_of(*app.get_parent());
    if (!share->empty()) {
      write_share(root, *share);
      return 0;
    }
    const std::string wanted =
        command->empty() ? root.name : root.name + "-" + command_named(*command).name;
    const std::vector<ManPage> pages = man_pages(root, sprat_version());
    // Every command has a page.
    fmt::print("{}", std::ranges::find(pages, wanted, &ManPage::name)->text);
    return 0;
  };
}

}  // namespace

extern const Command man_command;
const Command man_command = {
    "man",
    "Print a manual page",
    R"(Debian's package has the pages already: man sprat-train.

Examples:
  sprat man train | man -l -
  sprat man --write ~/.local/share       all pages, and the completions of bash, zsh and fish
)",
    prepare_man,
};

}  // namespace sprat::cli
