#include "io/report/report_line.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "comm/base/check.hpp"

namespace sprat::io {
namespace {

using ReportJson = nlohmann::ordered_json;

// Counted up when a key changes its meaning. New keys do not count: who does not know them reads
// on.
constexpr int report_version = 1;

ReportJson targets_json(const Interval& interval) {
  ReportJson list = ReportJson::array();
  for (const TargetInterval& target : interval.targets) {
    list.push_back({{"target", target.target},
                    {"bytes", target.bytes},
                    {"reads", target.reads},
                    {"errors", target.errors},
                    {"short_reads", target.short_reads},
                    {"p50_s", target.p50_s},
                    {"p95_s", target.p95_s},
                    {"p99_s", target.p99_s},
                    {"in_flight", target.in_flight},
                    {"in_flight_cap", target.in_flight_cap}});
  }
  return list;
}

ReportJson cores_json(const CoresInterval& cores) {
  ReportJson json = {{"budget", cores.budget},
                     {"decode_seconds", cores.decode_seconds},
                     {"read_seconds", cores.read_seconds},
                     {"reduce_seconds", cores.reduce_seconds},
                     {"reduced_bytes", cores.reduced_bytes},
                     {"reduced_in_seconds", cores.reduced_in_seconds}};
  if (cores.slowdown) {
    json["slowdown"] = *cores.slowdown;
  }
  return json;
}

/// What was not measured is left out, so that nobody takes it for zero.
void add_optional_parts(ReportJson& json, const Interval& interval) {
  if (interval.nic_bytes) {
    json["nic_bytes"] = *interval.nic_bytes;
  }
  if (interval.link_bytes_per_second) {
    json["link_bytes_per_second"] = *interval.link_bytes_per_second;
  }
  if (interval.cores) {
    json["cores"] = cores_json(*interval.cores);
  }
  if (interval.gpu_busy) {
    json["gpu_busy"] = *interval.gpu_busy;
  }
  if (!interval.step_seconds.empty()) {
    json["step_seconds"] = interval.step_seconds;
  }
}

/// Reads members of one object; what is missing keeps its default.
class ReportMembers {
 public:
  ReportMembers(const nlohmann::json& object, const std::string& where)
      : object_(object), where_(where) {
    need(object.is_object(), where, " is no JSON object");
  }

  void read(const char* key, double& into) const {
    if (const nlohmann::json* value = find(key)) {
      into = value->is_number() ? value->get<double>() : -1;
      need(std::isfinite(into) && into >= 0, where_, " has a \"", key,
           "\" that is no number from 0 on");
    }
  }
  void read(const char* key, std::uint64_t& into) const {
    if (const nlohmann::json* value = find(key)) {
      need(value->is_number_unsigned(), where_, " has a \"", key, "\" that is no whole number");
      into = value->get<std::uint64_t>();
    }
  }
  void read(const char* key, int& into) const {
    if (const nlohmann::json* value = find(key)) {
      // Targets are negative where data are on the metadata server, or nobody knows where.
      const bool whole = value->is_number_integer();
      const auto number = whole ? value->get<std::int64_t>() : 0;
      need(whole && number >= std::numeric_limits<int>::min() &&
               number <= std::numeric_limits<int>::max(),
           where_, " has a \"", key, "\" that is no whole number of 32 bits");
      into = static_cast<int>(number);
    }
  }
  void read(const char* key, std::string& into) const {
    if (const nlohmann::json* value = find(key)) {
      need(value->is_string(), where_, " has a \"", key, "\" that is no text");
      into = value->get<std::string>();
    }
  }
  template <class Value>
  void read(const char* key, std::optional<Value>& into) const {
    if (find(key) != nullptr) {
      read(key, into.emplace());
    }
  }
  const nlohmann::json* find(const char* key) const {
    const auto member = object_.find(key);
    return member == object_.end() ? nullptr : &*member;
  }
  /// The elements of a list; none if there is no such member.
  std::vector<const nlohmann::json*> list(const char* key) const {
    std::vector<const nlohmann::json*> elements;
    if (const nlohmann::json* value = find(key)) {
      need(value->is_array(), where_, " has a \"", key, "\" that is no list");
      for (const nlohmann::json& element : *value) {
        elements.push_back(&element);
      }
    }
    return elements;
  }
  const std::string& where() const { return where_; }

 private:
  const nlohmann::json& object_;
  const std::string& where_;
};

// One function for each level of the object, in the order in which it is written below.
void read_targets(const ReportMembers& members, Interval& interval) {
  for (const nlohmann::json* element : members.list("targets")) {
    const ReportMembers target(*element, members.where());
    TargetInterval& read = interval.targets.emplace_back();
    target.read("target", read.target);
    target.read("bytes", read.bytes);
    target.read("reads", read.reads);
    target.read("errors", read.errors);
    target.read("short_reads", read.short_reads);
    target.read("p50_s", read.p50_s);
    target.read("p95_s", read.p95_s);
    target.read("p99_s", read.p99_s);
    target.read("in_flight", read.in_flight);
    target.read("in_flight_cap", read.in_flight_cap);
  }
}

void read_parts(const ReportMembers& members, Interval& interval) {
  const nlohmann::json nothing = nlohmann::json::object();
  const auto part = [&](const char* key) {
    const nlohmann::json* object = members.find(key);
    return ReportMembers(object == nullptr ? nothing : *object, members.where());
  };
  // A part that is missing keeps its zeros, which is what a loader without that source writes.
  const ReportMembers bytes = part("bytes");
  bytes.read("file_system", interval.bytes.file_system);
  bytes.read("page_cache", interval.bytes.page_cache);
  bytes.read("host_cache", interval.bytes.host_cache);
  bytes.read("peers", interval.bytes.peers);
  const ReportMembers opens = part("opens");
  opens.read("files", interval.opens.files);
  opens.read("p95_s", interval.opens.p95_s);
  const ReportMembers released = part("released");
  released.read("reads_blocked", interval.released.reads_blocked);
  released.read("restored_bytes", interval.released.restored_bytes);
  released.read("left_bytes", interval.released.left_bytes);
  if (members.find("cores") != nullptr) {
    const ReportMembers cores = part("cores");
    CoresInterval& read = interval.cores.emplace();
    cores.read("budget", read.budget);
    cores.read("decode_seconds", read.decode_seconds);
    cores.read("read_seconds", read.read_seconds);
    cores.read("reduce_seconds", read.reduce_seconds);
    cores.read("reduced_bytes", read.reduced_bytes);
    cores.read("reduced_in_seconds", read.reduced_in_seconds);
    cores.read("slowdown", read.slowdown);
  }
}

Interval read_interval(const nlohmann::json& json, const std::string& where) {
  const ReportMembers members(json, where);
  Interval interval;
  members.read("begin_s", interval.begin_s);
  members.read("seconds", interval.seconds);
  // Every rate is divided by it.
  need(interval.seconds > 0, where, " is of an interval of no length");
  members.read("samples", interval.samples);
  members.read("in_flight", interval.in_flight);
  members.read("in_flight_cap", interval.in_flight_cap);
  members.read("queued", interval.queued);
  members.read("budget_used_bytes", interval.budget_used_bytes);
  members.read("budget_bytes", interval.budget_bytes);
  members.read("consumer_wait", interval.consumer_wait);
  members.read("budget_wait", interval.budget_wait);
  members.read("nic_bytes", interval.nic_bytes);
  members.read("link_bytes_per_second", interval.link_bytes_per_second);
  members.read("gpu_busy", interval.gpu_busy);
  read_parts(members, interval);
  read_targets(members, interval);
  for (const nlohmann::json* element : members.list("stages")) {
    const ReportMembers stage(*element, where);
    StageInterval& read = interval.stages.emplace_back();
    stage.read("name", read.name);
    stage.read("threads", read.threads);
    stage.read("busy_seconds", read.busy_seconds);
  }
  for (const nlohmann::json* element : members.list("step_seconds")) {
    need(element->is_number() && element->get<double>() >= 0, where,
         " has \"step_seconds\" that are no numbers from 0 on");
    interval.step_seconds.push_back(element->get<double>());
  }
  return interval;
}

/// The facts, so that a report can be diagnosed on another machine, long after the run.
void read_head(const nlohmann::json& json, const std::string& where, SavedReport& saved) {
  const ReportMembers members(json, where);
  int version = 0;  // of files that are no reports at all
  members.read("sprat_report", version);
  need(version == report_version, where, " is of a report of version ", version,
       "; this Sprat reads version ", report_version);
  members.read("rank", saved.report.rank);
  members.read("hosts", saved.facts.hosts);
  need(saved.facts.hosts > 0, where, " tells of ", saved.facts.hosts, " hosts");
  members.read("storage", saved.facts.about);
  members.read("metadata_iops", saved.facts.metadata_iops);
  members.read("storage_targets", saved.facts.targets);
  members.read("mean_file_bytes", saved.facts.mean_file_bytes);
  std::string fsx;
  members.read("fsx", fsx);
  if (!fsx.empty()) {
    try {
      saved.facts.system = parse_fsx(fsx);
    } catch (const Error& error) {
      need(false, where, ": ", error.what());
    }
  }
  for (const nlohmann::json* element : members.list("lone_files")) {
    const ReportMembers file(*element, where);
    Target target = 0;
    file.read("target", target);
    file.read("path", saved.facts.lone_files[target]);
  }
}

/// What stands between two percentiles for people: the slowest target's.
double slowest_p95(const Interval& interval) {
  double slowest = 0;
  for (const TargetInterval& target : interval.targets) {
    slowest = std::max(slowest, target.p95_s);
  }
  return slowest;
}

}  // namespace

std::string report_head_json(int rank, const StorageFacts& facts) {
  ReportJson json = {{"sprat_report", report_version},
                     {"rank", rank},
                     {"hosts", facts.hosts},
                     {"storage", facts.about},
                     {"mean_file_bytes", facts.mean_file_bytes}};
  if (facts.system) {
    json["fsx"] = fsx_option(*facts.system);
  }
  if (facts.metadata_iops) {
    json["metadata_iops"] = *facts.metadata_iops;
  }
  if (facts.targets) {
    json["storage_targets"] = *facts.targets;
  }
  for (const auto& [target, path] : facts.lone_files) {
    json["lone_files"].push_back({{"target", target}, {"path", path}});
  }
  // Names of files may be in any encoding, and JSON has one.
  return json.dump(-1, ' ', false, ReportJson::error_handler_t::replace);
}

std::string interval_json(const Interval& interval, const Diagnosis& diagnosis) {
  // The keys are the names of the fields, units and all, so that no page need explain them.
  ReportJson json = {{"begin_s", interval.begin_s},
                     {"seconds", interval.seconds},
                     {"samples", interval.samples},
                     {"bytes",
                      {{"file_system", interval.bytes.file_system},
                       {"page_cache", interval.bytes.page_cache},
                       {"host_cache", interval.bytes.host_cache},
                       {"peers", interval.bytes.peers}}},
                     {"in_flight", interval.in_flight},
                     {"in_flight_cap", interval.in_flight_cap},
                     {"queued", interval.queued},
                     {"budget_used_bytes", interval.budget_used_bytes},
                     {"budget_bytes", interval.budget_bytes},
                     {"consumer_wait", interval.consumer_wait},
                     {"budget_wait", interval.budget_wait},
                     {"opens", {{"files", interval.opens.files}, {"p95_s", interval.opens.p95_s}}},
                     {"released",
                      {{"reads_blocked", interval.released.reads_blocked},
                       {"restored_bytes", interval.released.restored_bytes},
                       {"left_bytes", interval.released.left_bytes}}},
                     {"targets", targets_json(interval)}};
  for (const StageInterval& stage : interval.stages) {
    json["stages"].push_back(
        {{"name", stage.name}, {"threads", stage.threads}, {"busy_seconds", stage.busy_seconds}});
  }
  add_optional_parts(json, interval);
  // Last, for people who look at raw lines.
  json["limit"] = diagnosis.causes.empty() ? "watching" : name(diagnosis.limit());
  json["sentence"] = diagnosis.sentence();
  return json.dump(-1, ' ', false, ReportJson::error_handler_t::replace);
}

std::string report_json(int rank, const StorageFacts& facts, const Interval& interval,
                        const Diagnosis& diagnosis) {
  std::string line = report_head_json(rank, facts);
  line.back() = ',';
  return line + interval_json(interval, diagnosis).substr(1);
}

std::string interval_text(const Interval& interval, const Diagnosis& diagnosis) {
  const double seconds = interval.seconds;
  const auto rate = [seconds](std::uint64_t bytes) {
    return figure(static_cast<double>(bytes) / 1e6 / seconds);
  };
  // Sources that gave nothing are left out: most runs have no caches, and the line has to fit.
  std::string sources = "storage " + rate(interval.bytes.file_system) + " MB/s";
  for (const auto& [bytes, from] : {std::pair{interval.bytes.page_cache, "page cache"},
                                    std::pair{interval.bytes.host_cache, "host cache"},
                                    std::pair{interval.bytes.peers, "peers"}}) {
    sources += bytes > 0 ? fmt::format(", {} {}", from, rate(bytes)) : "";
  }
  const double budget = interval.budget_bytes == 0
                            ? 0
                            : 100 * static_cast<double>(interval.budget_used_bytes) /
                                  static_cast<double>(interval.budget_bytes);
  return fmt::format(
      "{:6.0f} s  {} samples/s  {}  wait {:.0f} %  in flight {:.0f}/{:.0f}  p95 {}  budget {:.0f} "
      "% "
      " | {}",
      interval.begin_s + seconds, figure(static_cast<double>(interval.samples) / seconds), sources,
      100 * interval.consumer_wait, interval.in_flight, interval.in_flight_cap,
      time_figure(slowest_p95(interval)), budget, diagnosis.sentence());
}

SavedReport parse_report(const std::string& name, std::string_view text_of_report) {
  SavedReport saved;
  std::size_t line = 0;
  while (!text_of_report.empty()) {
    const std::size_t end = text_of_report.find('\n');
    const std::string_view words = text_of_report.substr(0, end);
    const std::string where = text(name, " line ", ++line);
    const auto json = nlohmann::json::parse(words, nullptr, false);
    if (json.is_discarded() && end == std::string_view::npos && line > 1) {
      break;  // the writer was killed in the middle of it
    }
    // In the middle of a file it is damage, and the rest may be, too.
    need(!json.is_discarded(), where, " is no JSON");
    if (line == 1) {
      read_head(json, where, saved);
    }
    // Those of a loader have the head in each line, so that any of them may be the first of a file.
    if (line > 1 || json.contains("seconds")) {
      saved.report.intervals.push_back(read_interval(json, where));
    }
    text_of_report.remove_prefix(end == std::string_view::npos ? text_of_report.size() : end + 1);
  }
  need(line > 0, name, " is empty; a report begins with a line of its own");
  return saved;
}

}  // namespace sprat::io
