// A report as lines: JSON for machines, one object a line, and a line for people.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/report/diagnosis.hpp"
#include "io/report/rule.hpp"

namespace sprat::io {

/// The first line of a report: who reports, and the facts that the diagnosis needs again.
std::string report_head_json(int rank, const StorageFacts& facts);
/// A line for each interval. Without a newline, as all here.
std::string interval_json(const Interval& interval, const Diagnosis& diagnosis);
/// Both in one line: a report may begin with any of them.
std::string report_json(int rank, const StorageFacts& facts, const Interval& interval,
                        const Diagnosis& diagnosis);
/// "   12 s  1,240 samples/s  storage 812 MB/s  ...  | compute-bound: ...".
std::string interval_text(const Interval& interval, const Diagnosis& diagnosis);

/// A report that is read again.
struct SavedReport {
  RankReport report;
  StorageFacts facts;
};
/// Takes any text. `name` is the file's, for errors. Diagnoses in it are not read: they are made
/// anew. Throws Error{unavailable} naming file and line. An incomplete last line, of a run that was
/// killed, is left out.
SavedReport parse_report(const std::string& name, std::string_view text);

}  // namespace sprat::io
