// Formats rows of measurements.
#include "cli/bench/report.hpp"

#include <fmt/core.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "sprat/error.hpp"

namespace sprat::cli {
namespace {

/// At most two digits after the point and seven characters, like nccl-tests.
std::string readable_us(double us) {
  return fmt::format("{:.{}f}", us, us < 100 ? 2 : us < 1e4 ? 1 : 0);
}

const char* op_name(const Task& task) { return reduces(task.call) ? name(task.op) : "none"; }

bool in_place(const Task& task) { return task.in_place || task.call.is(Collective::broadcast); }

}  // namespace

double Row::algbw_GBps() const {
  return timing.median_us > 0 ? static_cast<double>(bytes(task, ranks)) / timing.median_us / 1e3
                              : 0;
}

double Row::busbw_GBps() const { return algbw_GBps() * bus_factor(task.call, ranks); }

const char* name(Buffers::Kind kind) noexcept {
  return kind == Buffers::Kind::shared_memory ? "shared" : "private";
}

std::string to_json(const Row& row) {
  nlohmann::ordered_json json;
  json["collective"] = name(row.task.call);
  json["bytes"] = bytes(row.task, row.ranks);
  json["count"] = row.task.count;
  json["dtype"] = name(row.task.dtype);
  json["op"] = op_name(row.task);
  json["ranks"] = row.ranks;
  json["hosts"] = row.hosts;
  json["memory"] = name(row.memory);
  json["in_place"] = in_place(row.task);
  json["algorithm"] = row.algorithm;
  json["time_us"] = {
      {"median", row.timing.median_us}, {"p99", row.timing.p99_us}, {"min", row.timing.min_us}};
  json["algbw_GBps"] = row.algbw_GBps();
  json["busbw_GBps"] = row.busbw_GBps();
  // Null: nobody has looked. 0: everything was compared and is right.
  json["wrong"] = row.wrong ? nlohmann::ordered_json(*row.wrong) : nlohmann::ordered_json(nullptr);
  return json.dump();
}

Report::Report(const std::string& json_path) {
  // Opened before anything is measured, so that a path that cannot be written costs no minutes.
  if (!json_path.empty()) {
    json_.open(json_path);
    if (!json_) {
      throw Error(ErrorCode::unavailable, "cannot write \"" + json_path + "\"");
    }
  }
}

void Report::begin(const BenchCall& call, const Row& example) {
  fmt::print("# {}: {} ranks on {} host{}, {} memory, {}\n", name(call), example.ranks,
             example.hosts, example.hosts == 1 ? "" : "s", name(example.memory),
             in_place(example.task) ? "in place" : "out of place");
  fmt::print("#{:>11} {:>12} {:>6} {:>6} {:>10} {:>10} {:>8} {:>8} {:>7}  {}\n", "size", "count",
             "type", "redop", "time", "p99", "algbw", "busbw", "#wrong", "algorithm");
  fmt::print("#{:>11} {:>12} {:>6} {:>6} {:>10} {:>10} {:>8} {:>8}\n", "(B)", "(elements)", "", "",
             "(us)", "(us)", "(GB/s)", "(GB/s)");
}

void Report::add(const Row& row) {
  fmt::print("{:>12} {:>12} {:>6} {:>6} {:>10} {:>10} {:>8.2f} {:>8.2f} {:>7}  {}\n",
             bytes(row.task, row.ranks), row.task.count, name(row.task.dtype), op_name(row.task),
             readable_us(row.timing.median_us), readable_us(row.timing.p99_us), row.algbw_GBps(),
             row.busbw_GBps(), row.wrong ? std::to_string(*row.wrong) : "N/A", row.algorithm);
  std::fflush(stdout);
  if (json_.is_open()) {
    json_ << to_json(row) << '\n' << std::flush;
    if (!json_) {
      throw Error(ErrorCode::unavailable, "the JSON file cannot be written to its end");
    }
  }
}

}  // namespace sprat::cli
