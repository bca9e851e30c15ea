#include "cli/top/metrics.hpp"

#include <fmt/format.h>

#include <set>

namespace sprat::cli {
namespace {

using collectives::FlightRecord;
using collectives::RecordedTotal;

/// All values of a metric stand together below what it is, as the form wants it.
class MetricText {
 public:
  void begin(const char* metric, const char* type, const char* help) {
    metric_ = metric;
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", metric, help, metric, type);
  }
  void add(const std::string& labels, double value) {
    text_ += fmt::format("{}{{{}}} {}\n", metric_, labels, value);
  }
  void add(const std::string& labels, std::uint64_t value) {
    text_ += fmt::format("{}{{{}}} {}\n", metric_, labels, value);
  }
  const std::string& text() const { return text_; }

 private:
  const char* metric_ = "";
  std::string text_;
};

std::string job_labels(const FlightRecord& record) {
  return fmt::format("job=\"{}\"", label_value(record.job));
}

std::string rank_labels(const FlightRecord& record) {
  return fmt::format("{},rank=\"{}\"", job_labels(record), record.rank);
}

template <class Value>
void add_ranks(MetricText& text, const HostLook& look, const Value& value) {
  for (const RankLook& rank : look.ranks) {
    text.add(rank_labels(rank.record), value(rank));
  }
}

template <class Value>
void add_totals(MetricText& text, const HostLook& look, const Value& value) {
  for (const RankLook& rank : look.ranks) {
    for (const RecordedTotal& total : rank.record.totals) {
      text.add(fmt::format("{},operation=\"{}\"", rank_labels(rank.record),
                           label_value(total.operation)),
               value(total));
    }
  }
}

template <class Value>
void add_jobs(MetricText& text, const HostLook& look, const Value& value) {
  std::set<std::string> met;
  for (const RankLook& rank : look.ranks) {
    if (met.insert(rank.record.job).second) {
      text.add(job_labels(rank.record), value(rank));
    }
  }
}

void add_info(MetricText& text, const HostLook& look) {
  for (const RankLook& rank : look.ranks) {
    const auto process = look.processes.find(rank.pid);
    const std::string command = process == look.processes.end() ? "?" : process->second.command;
    text.add(fmt::format("{},pid=\"{}\",host=\"{}\",command=\"{}\"", rank_labels(rank.record),
                         rank.pid, label_value(rank.record.host), label_value(command)),
             std::uint64_t{1});
  }
}

void add_gpus(MetricText& text, const HostLook& look) {
  if (!look.gpus) {
    return;
  }
  text.begin("sprat_gpu_memory_bytes", "gauge", "Memory of GPUs that a process of ranks has.");
  for (const auto& [pid, gpus] : *look.gpus) {
    if (gpus.bytes) {
      text.add(fmt::format("pid=\"{}\"", pid), *gpus.bytes);
    }
  }
  text.begin("sprat_gpu_busy_ratio", "gauge", "How busy the GPUs are that a process is on.");
  for (const auto& [pid, gpus] : *look.gpus) {
    if (gpus.busy) {
      text.add(fmt::format("pid=\"{}\"", pid), *gpus.busy);
    }
  }
}

}  // namespace

std::string label_value(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') {
      out += '\\';
    }
    out += c;
  }
  return out;
}

std::string metrics_of(const HostLook& look) {
  MetricText text;
  text.begin("sprat_rank_up", "gauge", "1 for each rank on this host.");
  add_ranks(text, look, [](const RankLook&) { return std::uint64_t{1}; });
  text.begin("sprat_rank_info", "gauge", "What a rank is.");
  add_info(text, look);
  text.begin("sprat_rank_failed", "gauge", "1 once the rank's job has failed.");
  add_ranks(text, look, [](const RankLook& rank) {
    return static_cast<std::uint64_t>(rank.record.failure.empty() ? 0 : 1);
  });
  text.begin("sprat_rank_start_time_seconds", "gauge", "When the rank joined, since 1970.");
  add_ranks(text, look,
            [](const RankLook& rank) { return rank.record.started + rank.record.unix_offset; });
  text.begin("sprat_job_ranks", "gauge", "Ranks of the job on all hosts.");
  add_jobs(text, look,
           [](const RankLook& rank) { return static_cast<std::uint64_t>(rank.record.size); });
  text.begin("sprat_job_hosts", "gauge", "Hosts of the job.");
  add_jobs(text, look,
           [](const RankLook& rank) { return static_cast<std::uint64_t>(rank.record.hosts); });
  text.begin("sprat_calls_total", "counter", "Operations of a kind that have ended well.");
  add_totals(text, look, [](const RecordedTotal& total) { return total.calls; });
  text.begin("sprat_bytes_total", "counter", "Bytes of their callers' larger buffers.");
  add_totals(text, look, [](const RecordedTotal& total) { return total.bytes; });
  text.begin("sprat_wait_seconds_total", "counter", "Time that the rank's threads have waited.");
  add_ranks(text, look, [](const RankLook& rank) { return rank.record.waited; });
  text.begin("sprat_process_cpu_seconds_total", "counter", "CPU time of a process of ranks.");
  for (const auto& [pid, use] : look.processes) {
    text.add(fmt::format("pid=\"{}\"", pid), use.cpu_seconds);
  }
  text.begin("sprat_process_resident_bytes", "gauge", "Resident memory of a process of ranks.");
  for (const auto& [pid, use] : look.processes) {
    text.add(fmt::format("pid=\"{}\"", pid), use.resident_bytes);
  }
  add_gpus(text, look);
  return text.text();
}

}  // namespace sprat::cli
