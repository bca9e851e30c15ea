// `sprat doctor`: what this machine lacks, and what to type.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/command.hpp"
#include "cli/doctor/checks.hpp"
#include "comm/base/check.hpp"
#include "comm/base/config.hpp"
#include "sprat/config.hpp"
#include "sprat/error.hpp"

namespace sprat::cli {
namespace {

using Level = Finding::Level;

Finding check_variables() {
  std::string names;
  for (const UnknownVariable& unknown : unknown_variables()) {
    names += (names.empty() ? "" : ", ") + unknown.name;
  }
  if (names.empty()) {
    return {"configuration", Level::ok, "every SPRAT_* variable can be read"};
  }
  return {"configuration", Level::warn, "nothing reads " + names, "unset it; sprat info lists all"};
}

std::vector<Finding> examine() {
  std::vector<Finding> findings;
  Config config;
  try {
    config = Config::from_environment();
    findings.push_back(check_variables());
  } catch (const Error& error) {
    // The other checks go on with the defaults, so that people see at once all that is to be
    // mended.
    findings.push_back(
        {"configuration", Level::fail, error.what(), "correct or unset that variable"});
  }
  findings.insert(findings.end(),
                  {check_shared_memory(), check_peer_memory(), check_cross_memory_attach(),
                   check_memory_limit(), check_map_count(), check_huge_pages(), check_open_files(),
                   check_locked_memory(has_efa()), check_cores(), check_clock(),
                   check_interfaces(config), check_providers(config), check_mpirun()});
  const std::vector<Finding> storage = check_storage(*io::system_probe(config.fake_lustre));
  findings.insert(findings.end(), storage.begin(), storage.end());
  return findings;
}

void print_checks(const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    fmt::print("{:<5} {:<14} {}\n", name(finding.level), finding.check, finding.found);
    if (!finding.remedy.empty()) {
      fmt::print("{:<5} {:<14} -> {}\n", "", "", finding.remedy);
    }
  }
}

void print_checks_json(const std::vector<Finding>& findings) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"check", finding.check},
                    {"level", name(finding.level)},
                    {"found", finding.found},
                    {"remedy", finding.remedy}});
  }
  fmt::print("{}\n", list.dump(2));
}

Action prepare_doctor(CLI::App& app) {
  auto as_json = std::make_shared<bool>(false);
  app.add_flag("--json", *as_json, "One JSON array");
  return [as_json] {
    const std::vector<Finding> findings = examine();
    if (*as_json) {
      print_checks_json(findings);
    } else {
      print_checks(findings);
    }
    const bool ill = std::ranges::any_of(
        findings, [](const Finding& finding) { return finding.level == Level::fail; });
    return ill ? 1 : 0;
  };
}

}  // namespace

extern const Command doctor_command;
const Command doctor_command = {
    "doctor",
    "Check what this machine lacks, and say what to type",
    R"(One line a check: ok, warn (works, but slower or not everywhere) or fail (ranks cannot work, or fall back
to the network), with what was found and what to type. Whether ranks can map each other's memory is
tried with two processes. Ends with 1 if anything fails. Run it as the user and in the container that
the ranks will have.

Examples:
  sprat doctor
  sprat launch --hosts a:1,b:1 -- sprat doctor
  sprat doctor --json
)",
    prepare_doctor,
};

}  // namespace sprat::cli
