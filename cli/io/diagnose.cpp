#include "cli/io/diagnose.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "sprat/error.hpp"

namespace sprat::cli {
namespace {

/// From when on a limit was believed.
struct LimitChange {
  double at_s = 0;
  io::Diagnosis diagnosis;
};

std::vector<LimitChange> limits_of(const DiagnosedReport& report) {
  // Diagnosed anew and not read from the lines: reports of an older Sprat gain by newer causes.
  io::Diagnoser diagnoser(report.saved.facts);
  std::vector<LimitChange> changes;
  std::vector<io::Limit> before;
  for (const io::Interval& interval : report.saved.report.intervals) {
    diagnoser.add(interval);
    std::vector<io::Limit> now;
    for (const io::Cause& cause : diagnoser.diagnosis().causes) {
      now.push_back(cause.limit);
    }
    // A line for each second would bury the few moments at which something changed.
    if (now == before && !changes.empty()) {
      changes.back().diagnosis = diagnoser.diagnosis();  // the same limits with newer figures
    } else {
      changes.push_back({interval.begin_s + interval.seconds, diagnoser.diagnosis()});
    }
    before = std::move(now);
  }
  return changes;
}

std::vector<io::RankReport> whole_run(const std::vector<DiagnosedReport>& reports) {
  std::vector<io::RankReport> run;
  std::set<int> ranks;
  for (const DiagnosedReport& report : reports) {
    // Rules compare ranks, and one that counts twice would hide what differs.
    if (!ranks.insert(report.saved.report.rank).second) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{} is rank {}'s, and another report is, too; give each rank's once",
                              report.path, report.saved.report.rank));
    }
    run.push_back(report.saved.report);
  }
  return run;
}

struct DiagnoseArguments {
  std::vector<std::string> paths;
  bool json = false;
};

int run_diagnose(const DiagnoseArguments& request) {
  std::vector<DiagnosedReport> reports;
  for (const std::string& path : request.paths) {
    reports.push_back(read_report(path));
  }
  fmt::print("{}", request.json ? diagnosis_json(reports) + "\n" : diagnosis_text(reports));
  return 0;
}

}  // namespace

DiagnosedReport read_report(const std::string& path) {
  const auto refuse = [&path](const char* why) {
    throw Error(ErrorCode::unavailable, fmt::format("cannot read \"{}\": {}", path, why));
  };
  // A stream opens a folder without a word, and a pipe may never end.
  std::error_code none;
  if (std::filesystem::exists(path, none) && !std::filesystem::is_regular_file(path, none)) {
    refuse("it is no file");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    refuse(std::strerror(errno));
  }
  const std::string words{std::istreambuf_iterator<char>(file), {}};
  return {path, io::parse_report(path, words)};
}

std::string diagnosis_text(const std::vector<DiagnosedReport>& reports) {
  std::string words;
  for (const DiagnosedReport& report : reports) {
    const auto& intervals = report.saved.report.intervals;
    const double seconds =
        intervals.empty() ? 0 : intervals.back().begin_s + intervals.back().seconds;
    words +=
        fmt::format("{}: rank {}, {:.0f} s{}\n", report.path, report.saved.report.rank, seconds,
                    report.saved.facts.about.empty() ? "" : ", " + report.saved.facts.about);
    for (const LimitChange& change : limits_of(report)) {
      words += fmt::format("  from {:>5.0f} s  {}\n", change.at_s, change.diagnosis.sentence());
    }
  }
  // Over all ranks at once, since balance is between them.
  words += "rules, as SageMaker Debugger names them:\n";
  const std::vector<io::RankReport> run = whole_run(reports);
  for (const io::RuleKind* rule : io::rule_kinds()) {
    const io::RuleResult result = rule->judge(run);
    words += fmt::format("  {:<18} {:<13} {}\n", rule->name, name(result.verdict), result.sentence);
  }
  return words;
}

std::string diagnosis_json(const std::vector<DiagnosedReport>& reports) {
  using DiagnosisJson = nlohmann::ordered_json;
  DiagnosisJson json = {{"ranks", DiagnosisJson::array()}, {"rules", DiagnosisJson::array()}};
  for (const DiagnosedReport& report : reports) {
    DiagnosisJson rank = {{"path", report.path},
                          {"rank", report.saved.report.rank},
                          {"limits", DiagnosisJson::array()}};
    for (const LimitChange& change : limits_of(report)) {
      DiagnosisJson limits = DiagnosisJson::array();
      for (const io::Cause& cause : change.diagnosis.causes) {
        limits.push_back(
            {{"limit", name(cause.limit)}, {"sentence", cause.sentence}, {"remedy", cause.remedy}});
      }
      rank["limits"].push_back({{"from_s", change.at_s}, {"causes", limits}});
    }
    json["ranks"].push_back(rank);
  }
  const std::vector<io::RankReport> run = whole_run(reports);
  for (const io::RuleKind* rule : io::rule_kinds()) {
    const io::RuleResult result = rule->judge(run);
    json["rules"].push_back(
        {{"rule", rule->name}, {"verdict", name(result.verdict)}, {"sentence", result.sentence}});
  }
  return json.dump(-1, ' ', false, DiagnosisJson::error_handler_t::replace);
}

Action prepare_io_diagnose(CLI::App& app) {
  auto r = std::make_shared<DiagnoseArguments>();
  app.add_option("REPORT", r->paths, "What loaders wrote, a file a rank")->required();
  app.add_flag("--json", r->json, "One JSON object instead of text");
  return [r] { return run_diagnose(*r); };
}

}  // namespace sprat::cli
