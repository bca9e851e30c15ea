// Manual pages in the language of man(7), made of the texts of `--help`.
#pragma once

#include <string>
#include <vector>

#include "cli/outline/outline.hpp"

namespace sprat::cli {

struct ManPage {
  std::string name;  ///< "sprat", "sprat-train"
  std::string text;
};

/// One for `root` and one for each of its commands, which holds those below it as sections.
std::vector<ManPage> man_pages(const CommandOutline& root, const std::string& version);

/// Text for roff: nothing in it is taken for a request. Lines stay lines.
std::string roff_of(const std::string& text);

/// A lesson: text is filled, indented lines stay as they are, "Examples:" becomes a section.
std::string roff_of_lesson(const std::string& lesson);

}  // namespace sprat::cli
