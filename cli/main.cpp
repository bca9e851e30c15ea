// The `sprat` command: parses, runs one subcommand, and says what failed in one line.
#include <CLI/CLI.hpp>
#include <new>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "cli/complain.hpp"
#include "comm/base/log.hpp"
#include "sprat/error.hpp"
#include "sprat/sprat.h"

namespace {

using namespace sprat::cli;

int run(int argc, char** argv) {
  if (argc > 1 && argv[1][0] != '-') {
    // CLI11 would complain of a missing subcommand, and not name the word.
    static_cast<void>(command_named(argv[1]));
  }
  CLI::App app("Collectives and sharded training that know the machine they run on.", "sprat");
  app.require_subcommand(1);
  app.set_version_flag("--version", sprat_version(), "Print the version and end");
  struct Entry {
    CLI::App* app;
    Action action;
  };
  std::vector<Entry> entries;
  for (const Command* command : all_commands()) {
    CLI::App* sub = app.add_subcommand(command->name, command->summary);
    sub->footer(command->lesson);
    entries.push_back({sub, command->prepare(*sub)});
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {  // --help
    return app.exit(wanted);
  } catch (const CLI::ParseError& error) {
    complain(std::string(error.what()) + " (try: sprat help)");
    return 2;
  }
  for (const Entry& entry : entries) {
    if (entry.app->parsed()) {
      return entry.action();
    }
  }
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const UsageError& error) {
    complain(error.what());
    return 2;
  } catch (const sprat::Error& error) {
    if (!sprat::log().has_said(error.what())) {
      complain(error.what());  // what others told this rank the library says the moment it is known
    }
    return 1;
  } catch (const std::bad_alloc&) {
    complain(
        "no memory is left; take less, or raise the limit (see ulimit -v, or the container's)");
    return 1;
  } catch (const std::exception& error) {
    complain(error.what());
    return 1;
  }
}
