// `sprat trace`: what a Chrome trace says.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "cli/command.hpp"
#include "planning/trace_summary.hpp"
#include "sprat/error.hpp"

namespace sprat::cli {
namespace {

/// Traces of long runs are some hundred MB; they are read whole, since slices refer to each other.
int summarise_trace(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw Error(ErrorCode::unavailable,
                fmt::format("cannot open \"{}\": {}", path, std::strerror(errno)));
  }
  const std::string json{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  fmt::print("{}", planning::summary_text(planning::summarise(planning::parse_trace(json, path))));
  return 0;
}

Action prepare_trace(CLI::App& app) {
  app.require_subcommand(1);
  auto path = std::make_shared<std::string>();
  CLI::App* summary =
      app.add_subcommand("summary", "Where the time went, and what to change, in five sentences");
  summary->add_option("FILE", *path, "A trace")->required();
  return [path] { return summarise_trace(*path); };
}

}  // namespace

extern const Command trace_command;
const Command trace_command = {
    "trace",
    "Where the time of a traced run went, and what to change",
    R"(Reads Chrome traces, the form of chrome://tracing and ui.perfetto.dev: those that `sprat pipeline --trace` writes of a schedule in
virtual time, and any other whose processes are ranks and whose slices have the categories computes, messages, collectives, tier.
Computing counts first: what goes on beside it is hidden. The rest is communication or loading where one of the rank's own is
under way, and else waiting for other ranks. A trace whose slices overlap in one thread, or whose flows have one end, is refused.

Example:
  sprat pipeline --schedule 1f1b -p 4 -m 8 --communicate --latency 0.1 --trace p.json
  sprat trace summary p.json
)",
    prepare_trace,
};

}  // namespace sprat::cli
