// `sprat status`: what ranks do now or did last, also when they hang; and who waits for whom.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "cli/command.hpp"
#include "cli/complain.hpp"
#include "cli/status/trace.hpp"
#include "collectives/record/explain.hpp"
#include "collectives/record/flight_record.hpp"
#include "comm/base/whole_file.hpp"
#include "sprat/error.hpp"

namespace sprat::cli {
namespace {

using collectives::FlightRecord;
using State = collectives::CallState;

constexpr std::size_t operations_shown = 8;

struct Options {
  std::vector<std::string> sources;  ///< PIDs or files; none: every process of this user.
  bool json = false, explain = false;
  std::string trace;
};

bool is_number(const std::string& source) {
  return std::ranges::all_of(source, [](char c) { return c >= '0' && c <= '9'; });
}

std::vector<FlightRecord> of_process(pid_t pid) {
  auto records = collectives::flight_records_of(pid);
  if (records.empty()) {
    throw Error(ErrorCode::unavailable, fmt::format("process {} is no rank of a Sprat job", pid));
  }
  return records;
}

std::vector<FlightRecord> of_every_process() {
  std::vector<FlightRecord> all;
  for (const pid_t pid : collectives::processes_with_flight_records()) {
    try {
      std::ranges::move(collectives::flight_records_of(pid), std::back_inserter(all));
    } catch (const Error& error) {  // it has ended meanwhile, or is of another version
      complain(error.what());
    }
  }
  return all;
}

std::vector<FlightRecord> collect(const std::vector<std::string>& sources) {
  if (sources.empty()) {
    return of_every_process();
  }
  std::vector<FlightRecord> all;
  for (const std::string& source : sources) {
    if (!is_number(source)) {
      std::error_code failed;
      const auto kind = std::filesystem::status(source, failed).type();
      if (failed || kind == std::filesystem::file_type::directory) {
        throw UsageError(fmt::format("\"{}\" is no process id, and no file: {}", source,
                                     failed ? failed.message() : "it is a folder"));
      }
      all.push_back(collectives::read_flight_record_file(source));
      continue;
    }
    pid_t pid = 0;
    const char* end = source.data() + source.size();
    if (std::from_chars(source.data(), end, pid).ec != std::errc{}) {
      throw UsageError(source + " is no process id");
    }
    std::ranges::move(of_process(pid), std::back_inserter(all));
  }
  return all;
}

std::string duration(double seconds) {
  // The process writes its page while it is read, so a start may lie after the moment of reading.
  if (seconds < 1e-3) {
    return fmt::format("{:.1f} us", std::max(0.0, seconds) * 1e6);
  }
  return seconds < 1 ? fmt::format("{:.1f} ms", seconds * 1e3) : fmt::format("{:.1f} s", seconds);
}

std::string ranks(const std::vector<int>& list) {
  return fmt::format("rank{} {}", list.size() == 1 ? "" : "s", fmt::join(list, ", "));
}

/// "31.2 s, late: rank 2", or how long it took.
std::string time_text(const FlightRecord& record, const collectives::RecordedOperation& one) {
  if (one.state == State::queued && one.late.empty() && one.waits_for.empty()) {
    return "";
  }
  const double since = one.started != 0 ? one.started : one.posted;
  std::string text = duration((one.ended != 0 ? one.ended : record.taken) - since);
  text += one.late.empty() ? "" : ", not called by " + ranks(one.late);
  text += one.waits_for.empty() ? "" : ", waits for " + ranks(one.waits_for);
  return text;
}

void print_communicator(const FlightRecord& record, const collectives::RecordedCommunicator& one) {
  fmt::print("  {}: rank {} of {}; {} operations called, {} ended\n", one.name, one.rank, one.size,
             one.posted, one.ended);
  const std::size_t count = one.operations.size();
  const std::size_t in_flight = static_cast<std::size_t>(
      std::ranges::count_if(one.operations, [](const auto& o) { return o.ended == 0; }));
  // What is in flight, and a few before it; of many queued ones the first.
  const std::size_t first = count - std::min(count, std::max(operations_shown, in_flight + 2));
  for (std::size_t i = first; i < std::min(count, first + 2 * operations_shown); ++i) {
    const collectives::RecordedOperation& operation = one.operations[i];
    fmt::print("    {:>8}  {:<8} {:>10} ago  {:<36} {:<15} {}\n", operation.sequence,
               name(operation.state), duration(record.taken - operation.posted), operation.call,
               operation.algorithm, time_text(record, operation));
  }
  for (const collectives::RecordedMessage& message : one.messages) {
    if (message.state != State::done) {
      fmt::print("    {:>8}  {:<8} {:>10} ago  {}\n", message.sends ? "send" : "recv",
                 name(message.state), duration(record.taken - message.posted),
                 fmt::format("{} {} with tag {}, {} bytes", message.sends ? "to" : "from",
                             message.peer < 0 ? "any rank" : fmt::format("rank {}", message.peer),
                             message.tag, message.bytes));
    }
  }
}

void print_record(const FlightRecord& record) {
  fmt::print("rank {} of {}, process {} on {}; {} of its threads wait\n", record.rank, record.size,
             record.pid, record.host,
             record.waiting_threads == 0 ? "none" : fmt::to_string(record.waiting_threads));
  if (!record.failure.empty()) {
    fmt::print("  failed: {}\n", record.failure);
  }
  for (const collectives::RecordedCommunicator& one : record.communicators) {
    print_communicator(record, one);
  }
  if (record.unlisted > 0) {
    fmt::print("  {} more communicators that the status page had no room for\n", record.unlisted);
  }
}

void print_records_json(const std::vector<FlightRecord>& records) {
  fmt::print("[");
  for (std::size_t i = 0; i < records.size(); ++i) {
    fmt::print("{}\n{}", i == 0 ? "" : ",", to_json(records[i]));
  }
  fmt::print("\n]\n");
}

int run_status(const Options& options) {
  const std::vector<FlightRecord> records = collect(options.sources);
  if (!options.trace.empty()) {
    write_whole_file(options.trace, to_trace(records));
    return 0;
  }
  if (options.json) {
    print_records_json(records);
    return 0;
  }
  if (records.empty()) {
    fmt::print("no process of this user is a rank of a Sprat job\n");
    return 0;
  }
  if (options.explain) {
    const std::vector<std::string> lines = collectives::explain(records);
    for (const std::string& line : lines) {
      fmt::print("{}\n", line);
    }
    if (lines.empty()) {
      fmt::print("nothing waits\n");
    }
    return 0;
  }
  for (const FlightRecord& record : records) {
    print_record(record);
  }
  return 0;
}

Action prepare_status(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("SOURCE", options->sources, "Process ids, or files that failed ranks left");
  app.add_flag("--explain", options->explain, "Say who waits for whom, from all of them together");
  app.add_flag("--json", options->json, "One JSON array, a flight record for each rank")
      ->excludes("--explain");
  app.add_option("--trace", options->trace, "Write the last calls of one job for ui.perfetto.dev")
      ->excludes("--explain")
      ->excludes("--json");
  return [options] { return run_status(*options); };
}

}  // namespace

extern const Command status_command;
const Command status_command = {
    "status",
    "Show what ranks do now, also hung ones, and who waits for whom",
    R"(Of each rank: its communicators, their last operations, how long they took or wait, and for whom.
It asks nothing of the process, so one that hangs or is stopped shows as well as one that runs.

Examples:
  sprat status                         every rank of this user on this host
  sprat status 4711                    the ranks of process 4711
  sprat status --explain               who waits for whom, over all of them
  sprat status --trace last.json 4711  its last calls as a timeline (docs/tracing.md)
  SPRAT_FLIGHT_RECORDER=/tmp mpirun -np 4 CMD; sprat status --explain /tmp/sprat-*.json
)",
    prepare_status,
};

}  // namespace sprat::cli
