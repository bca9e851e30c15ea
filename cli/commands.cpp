// The table of subcommands.
#include <algorithm>
#include <array>
#include <string>

#include "cli/command.hpp"

namespace sprat::cli {

extern const Command bench_command, checkpoint_command, completions_command, diff_command,
    doctor_command, help_command, info_command, io_command, launch_command, man_command,
    partition_command, pipeline_command, plan_command, simulate_command, status_command,
    top_command, topo_command, trace_command, train_command, version_command;

std::span<const Command* const> all_commands() noexcept {
  static constexpr std::array commands = {
      &train_command,    &checkpoint_command, &launch_command,      &bench_command,
      &simulate_command, &pipeline_command,   &partition_command,   &plan_command,
      &trace_command,    &io_command,         &status_command,      &top_command,
      &diff_command,     &doctor_command,     &topo_command,        &info_command,
      &help_command,     &man_command,        &completions_command, &version_command};
  return commands;
}

const Command& command_named(std::string_view name) {
  const auto found = std::ranges::find_if(
      all_commands(), [name](const Command* command) { return name == command->name; });
  if (found == all_commands().end()) {
    throw UsageError("there is no command \"" + std::string(name) + "\" (try: sprat help)");
  }
  return **found;
}

}  // namespace sprat::cli
