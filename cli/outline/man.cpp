#include "cli/outline/man.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

namespace sprat::cli {
namespace {

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](char letter) {
    return 'a' <= letter && letter <= 'z' ? static_cast<char>(letter - 'a' + 'A') : letter;
  });
  return text;
}

std::string heading(const std::string& page, const std::string& version,
                    const std::string& summary) {
  return fmt::format(".TH {} 1 \"\" \"Sprat {}\" \"Sprat\"\n.SH NAME\n{} \\- {}\n", upper(page),
                     version, roff_of(page), roff_of(summary));
}

/// "sprat io index [OPTIONS] PATHS..."
std::string synopsis(const std::string& words, const CommandOutline& command) {
  std::string text = ".B " + roff_of(words) + "\n";
  text += command.options.empty() ? "" : "[OPTIONS]\n";
  text += command.commands.empty() ? "" : "[COMMAND]\n";
  for (const OptionOutline& positional : command.positionals) {
    const std::string name = positional.names.front() + (positional.repeats ? "..." : "");
    text += ".I " + roff_of(positional.required ? name : "[" + name + "]") + "\n";
  }
  return text;
}

std::string rows_of(const std::vector<OptionOutline>& options) {
  std::string rows;
  for (const OptionOutline& option : options) {
    rows += ".TP\n.B " + roff_of(spelling_of(option)) + "\n" + roff_of(option.help) + "\n";
    if (!option.choices.empty()) {
      rows += roff_of(fmt::format("One of {}.", fmt::join(option.choices, ", "))) + "\n";
    }
  }
  return rows;
}

std::string page_of(const std::string& root, const CommandOutline& command,
                    const std::string& version) {
  const std::string words = root + " " + command.name;
  std::string text = heading(root + "-" + command.name, version, command.summary);
  text += ".SH SYNOPSIS\n" + synopsis(words, command);
  for (const CommandOutline& sub : command.commands) {
    text += ".br\n" + synopsis(words + " " + sub.name, sub);
  }
  text += ".SH OPTIONS\n" + rows_of(command.positionals) + rows_of(command.options);
  for (const CommandOutline& sub : command.commands) {
    text += ".SH " + roff_of(upper(words + " " + sub.name)) + "\n" + roff_of(sub.summary) + ".\n" +
            rows_of(sub.positionals) + rows_of(sub.options);
  }
  text += ".SH DESCRIPTION\n" + roff_of_lesson(command.lesson);
  for (const CommandOutline& sub : command.commands) {
    if (!sub.lesson.empty()) {
      text += ".SS " + roff_of(words + " " + sub.name) + "\n" + roff_of_lesson(sub.lesson);
    }
  }
  return text + ".SH SEE ALSO\n.BR " + roff_of(root) + " (1)\n";
}

std::string first_page(const CommandOutline& root, const std::string& version) {
  std::string text = heading(root.name, version, "collectives and sharded training");
  text += ".SH SYNOPSIS\n" + synopsis(root.name, root);
  text += ".SH DESCRIPTION\n" + roff_of(root.summary) + "\n.SH COMMANDS\n";
  for (const CommandOutline& command : root.commands) {
    text += fmt::format(".TP\n.BR {} (1)\n{}\n", roff_of(root.name + "-" + command.name),
                        roff_of(command.summary));
  }
  text += ".SH OPTIONS\n" + rows_of(root.options);
  return text +
         ".SH EXIT STATUS\n0 if all went well, 2 if the command line makes no sense, 1 if the work "
         "failed. Then standard\nerror has one line that says what, and what to do.\n";
}

}  // namespace

std::string roff_of(const std::string& text) {
  std::string result;
  bool begins = true;
  for (const char letter : text) {
    if (begins && (letter == '.' || letter == '\'')) {
      result += "\\&";  // at a line's begin either is a request
    }
    begins = letter == '\n';
    // What people copy needs the hyphen of the keyboard, not the one of typesetters.
    result += letter == '\\' ? "\\e" : letter == '-' ? "\\-" : std::string(1, letter);
  }
  return result;
}

std::string roff_of_lesson(const std::string& lesson) {
  std::string result;
  std::istringstream lines(lesson);
  bool as_it_is = false;
  for (std::string line; std::getline(lines, line);) {
    const bool indented = line.starts_with(' ');
    if (as_it_is && !indented) {
      result += ".EE\n";
    }
    if (line.empty()) {
      result += ".PP\n";
    } else if (line == "Examples:" || line == "Example:") {
      result += ".SS " + line.substr(0, line.size() - 1) + "\n";
    } else {
      result += (indented && !as_it_is ? ".EX\n" : "") + roff_of(line) + "\n";
    }
    as_it_is = indented;
  }
  return result + (as_it_is ? ".EE\n" : "");
}

std::vector<ManPage> man_pages(const CommandOutline& root, const std::string& version) {
  std::vector<ManPage> pages = {{root.name, first_page(root, version)}};
  for (const CommandOutline& command : root.commands) {
    pages.push_back({root.name + "-" + command.name, page_of(root.name, command, version)});
  }
  return pages;
}

}  // namespace sprat::cli
