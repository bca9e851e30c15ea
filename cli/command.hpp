// A subcommand of `sprat`: a name, a lesson, its options and what runs it.
#pragma once

#include <functional>
#include <span>
#include <stdexcept>
#include <string_view>

namespace CLI {
class App;
}

namespace sprat::cli {

/// Runs the parsed subcommand; returns the exit code.
using Action = std::function<int()>;

struct Command {
  const char* name;
  const char* summary;  ///< One line.
  const char* lesson;   ///< What `sprat help NAME` teaches, with an example.
  /// Adds the options to `app`. The Action is called after parsing.
  Action (*prepare)(CLI::App& app);
};

/// The command line makes no sense: exit code 2.
class UsageError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Every subcommand, in the order `sprat help` lists them.
std::span<const Command* const> all_commands() noexcept;
/// Throws UsageError if there is none of this name.
const Command& command_named(std::string_view name);

}  // namespace sprat::cli
