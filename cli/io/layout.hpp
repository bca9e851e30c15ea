// `sprat io layout FILE ...`: on which targets files lie, and whether their data are here.
#pragma once

#include <string>
#include <vector>

#include "cli/command.hpp"
#include "io/lustre/fs_probe.hpp"

namespace sprat::cli {

/// A line for each file. Throws Error naming a file that cannot be opened.
std::string layouts_text(const io::FsProbe& probe, const std::vector<std::string>& paths);
/// A JSON object a line for each file.
std::string layouts_json(const io::FsProbe& probe, const std::vector<std::string>& paths);

/// Adds the options of `sprat io layout`.
Action prepare_io_layout(CLI::App& app);

}  // namespace sprat::cli
