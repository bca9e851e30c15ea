// `sprat plan storage`: which file system feeds a training run.
#pragma once

#include <optional>
#include <string>

#include "cli/command.hpp"
#include "io/capacity/demand.hpp"

namespace sprat::cli {

/// "30s", "5min", "1.5h", or seconds; empty if it is none of these.
std::optional<double> duration_seconds(const std::string& text);
/// The tables for people.
std::string storage_plan_text(const io::StorageDemand& demand,
                              const std::optional<io::FsxSystem>& system);
/// One JSON object.
std::string storage_plan_json(const io::StorageDemand& demand,
                              const std::optional<io::FsxSystem>& system);

/// Adds the options of `sprat plan storage`.
Action prepare_plan_storage(CLI::App& app);

}  // namespace sprat::cli
