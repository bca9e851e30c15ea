// `sprat help [COMMAND]`: what there is, and how to use it.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "cli/command.hpp"

namespace sprat::cli {
namespace {

constexpr const char* introduction =
    R"(Sprat: collectives that know the machine they run on, and training that is sharded over them.

  ./quickstart                                         install, build, and train a small GPT
  mpirun -np 4 sprat train examples/gpt-jargon.json    train over four processes
  sprat checkpoint inspect FOLDER                      what is in a checkpoint?
  sprat io index FOLDER                                what is in these files of data?
  mpirun -np 4 sprat bench all_reduce                  how fast are the collectives here?
  sprat simulate all_reduce --topology p4d --hosts 64  how fast would they be there?
  sprat pipeline -p 4 -m 16 --all                      which pipeline schedule waits least?
  sprat partition config.json -p 4                     where to cut a GPT-2 for a pipeline?
  sprat plan --model gpt-30b --hosts 16                does it fit, how to spread it, how fast?
  sprat plan storage --dataset 100GB --epoch 30s       which file system feeds it?
  sprat trace summary TRACE.json                       where did the time go, and what to change?
  sprat doctor                                         what is missing on this machine?
  sprat topo                                           what is this machine made of?
  sprat info                                           which choices does Sprat make here, and why?
  sprat status --explain                               what do the ranks that run here wait for?
  sprat diff RUN RUN                                   at which call, rank and element do two runs part?

Commands:
)";

Action prepare_help(CLI::App& app) {
  auto topic = std::make_shared<std::string>();
  app.add_option("COMMAND", *topic, "What to explain");
  return [&app, topic] {
    if (topic->empty()) {
      fmt::print("{}", introduction);
      for (const Command* command : all_commands()) {
        fmt::print("  {:<11} {}\n", command->name, command->summary);
      }
      fmt::print("\n`sprat help COMMAND` explains one of them, with examples.\n");
      return 0;
    }
    fmt::print("{}", app.get_parent()->get_subcommand(command_named(*topic).name)->help());
    return 0;
  };
}

}  // namespace

extern const Command help_command;
const Command help_command = {
    "help",
    "Explain a command, with examples",
    "Example:\n  sprat help bench\n",
    prepare_help,
};

}  // namespace sprat::cli
