// Reports of loaders that are read again: refused with an Error, or diagnosed and judged.
#include <string_view>
#include <vector>

#include "io/report/report_line.hpp"
#include "sprat/error.hpp"
#include "tests/system/fuzz/targets.hpp"

namespace sprat::fuzz {

/// The input is a report.
bool run_report(std::span<const std::byte> input) {
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  try {
    const io::SavedReport saved = io::parse_report("report", text);
    const io::Diagnosis diagnosis = io::diagnose(saved.report.intervals, saved.facts);
    expect(!diagnosis.sentence().empty(), "a diagnosis is a sentence");
    std::string again = io::report_head_json(saved.report.rank, saved.facts) + "\n";
    for (const io::Interval& interval : saved.report.intervals) {
      again += io::interval_json(interval, diagnosis) + "\n";
      expect(!io::interval_text(interval, diagnosis).empty(), "people read a line");
    }
    expect(io::parse_report("again", again).report.intervals == saved.report.intervals,
           "a report comes back");
    for (const io::RuleKind* rule : io::rule_kinds()) {
      rule->judge(std::vector{saved.report});
    }
    return true;
  } catch (const Error& error) {
    expect(*error.what() != '\0', "a refusal says why");
    return false;
  }
}

}  // namespace sprat::fuzz
