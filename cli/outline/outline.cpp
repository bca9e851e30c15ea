#include "cli/outline/outline.hpp"

#include <CLI/CLI.hpp>

namespace sprat::cli {
namespace {

/// CLI11 puts the values that CLI::IsMember allows into the type's name: "TEXT:{private,shared}".
std::vector<std::string> choices_in(const std::string& type) {
  const std::size_t open = type.find('{'), close = type.find('}');
  if (open == std::string::npos || close == std::string::npos || close < open) {
    return {};
  }
  return CLI::detail::split(type.substr(open + 1, close - open - 1), ',');
}

OptionOutline outline_of(const CLI::Option& option) {
  OptionOutline outline{.names = {},
                        .value = {},
                        .choices = {},
                        .help = option.get_description(),
                        .required = option.get_required(),
                        .repeats = option.get_items_expected_max() > 1};
  if (option.get_positional()) {
    outline.names = {option.get_name(true, false)};
  } else {
    for (const std::string& name : option.get_lnames()) {
      outline.names.push_back("--" + name);
    }
    for (const std::string& name : option.get_snames()) {
      outline.names.push_back("-" + name);
    }
  }
  if (option.get_items_expected_max() > 0) {
    outline.choices = choices_in(option.get_type_name());
    // The type ends where the rules for values begin, which the help text says better.
    const std::string type = option.get_type_name();
    outline.value = type.substr(0, type.find(':'));
    if (outline.value.empty()) {
      outline.value = "VALUE";
    }
  }
  return outline;
}

void add_paths(const CommandOutline& command, const std::string& path,
               std::vector<PathOutline>& paths) {
  paths.push_back({path, &command});
  for (const CommandOutline& sub : command.commands) {
    add_paths(sub, path + "/" + sub.name, paths);
  }
}

}  // namespace

CommandOutline outline_of(const CLI::App& app) {
  CommandOutline outline{.name = app.get_name(),
                         .summary = app.get_description(),
                         .lesson = app.get_footer(),
                         .options = {},
                         .positionals = {},
                         .commands = {}};
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_group().empty()) {  // an empty group is how CLI11 hides
      (option->get_positional() ? outline.positionals : outline.options)
          .push_back(outline_of(*option));
    }
  }
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!sub->get_group().empty()) {
      outline.commands.push_back(outline_of(*sub));
    }
  }
  return outline;
}

std::vector<PathOutline> paths_of(const CommandOutline& root) {
  std::vector<PathOutline> paths;
  add_paths(root, "", paths);
  return paths;
}

std::string spelling_of(const OptionOutline& option) {
  std::string text;
  for (const std::string& name : option.names) {
    text += (text.empty() ? "" : ", ") + name;
  }
  return option.value.empty() || !option.names.front().starts_with('-') ? text
                                                                        : text + " " + option.value;
}

}  // namespace sprat::cli
