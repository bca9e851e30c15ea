// `sprat io diagnose REPORT.jsonl ...`: what limited a run, from the reports that its loaders
// wrote.
#pragma once

#include <string>
#include <vector>

#include "cli/command.hpp"
#include "io/report/report_line.hpp"

namespace sprat::cli {

struct DiagnosedReport {
  std::string path;
  io::SavedReport saved;
};
/// Reads a report. Throws Error naming file and line.
DiagnosedReport read_report(const std::string& path);

/// When what limited each rank, the last diagnosis, and the rules over the whole run.
std::string diagnosis_text(const std::vector<DiagnosedReport>& reports);
/// One JSON object.
std::string diagnosis_json(const std::vector<DiagnosedReport>& reports);

/// Adds the options of `sprat io diagnose`.
Action prepare_io_diagnose(CLI::App& app);

}  // namespace sprat::cli
