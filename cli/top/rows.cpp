#include "cli/top/rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace sprat::cli {
namespace {

using collectives::CallState;
using collectives::FlightRecord;
using collectives::RecordedTotal;

// Who is late less often than that keeps nobody waiting for long.
constexpr double straggler_share = 0.2;

const RankLook* find_rank(const HostLook& look, const RankLook& wanted) {
  const auto found = std::ranges::find_if(look.ranks, [&](const RankLook& one) {
    return one.pid == wanted.pid && one.record.rank == wanted.record.rank &&
           one.record.job == wanted.record.job;
  });
  return found == look.ranks.end() ? nullptr : &*found;
}

std::uint64_t grown(std::uint64_t before, std::uint64_t after) {
  return after > before ? after - before : 0;  // foreign numbers may go back
}

std::vector<OperationRate> operation_rates(const std::vector<RecordedTotal>& before,
                                           const std::vector<RecordedTotal>& after,
                                           double seconds) {
  std::vector<OperationRate> rates;
  for (const RecordedTotal& now : after) {
    const auto then = std::ranges::find(before, now.operation, &RecordedTotal::operation);
    const RecordedTotal none;
    const RecordedTotal& was = then == before.end() ? none : *then;
    if (const std::uint64_t calls = grown(was.calls, now.calls); calls > 0) {
      rates.push_back({.operation = now.operation,
                       .calls = static_cast<double>(calls) / seconds,
                       .bytes = static_cast<double>(grown(was.bytes, now.bytes)) / seconds});
    }
  }
  std::ranges::stable_sort(rates, [](const OperationRate& a, const OperationRate& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.calls > b.calls;
  });
  return rates;
}

double clamped_share(double part, double whole) {
  return whole > 0 ? std::clamp(part / whole, 0.0, 1.0) : 0;
}

std::string spelled(double seconds) {
  return seconds < 1 ? fmt::format("{:.0f} ms", 1e3 * std::max(0.0, seconds))
                     : fmt::format("{:.1f} s", seconds);
}

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

/// Of what is in flight, that which was called first; the time it takes says whether it hangs.
std::string doing_of(const FlightRecord& record) {
  const collectives::RecordedOperation* oldest = nullptr;
  for (const collectives::RecordedCommunicator& one : record.communicators) {
    for (const collectives::RecordedOperation& operation : one.operations) {
      const bool runs = operation.state == CallState::running;
      if (runs && (oldest == nullptr || operation.posted < oldest->posted)) {
        oldest = &operation;
      }
    }
  }
  if (oldest == nullptr) {
    return record.waiting_threads > 0 ? "waits" : "";
  }
  std::string text =
      fmt::format("{} since {}", oldest->call, spelled(record.taken - oldest->posted));
  text += oldest->late.empty() ? "" : ", not called by " + ranks_text(oldest->late);
  text += oldest->waits_for.empty() ? "" : ", waits for " + ranks_text(oldest->waits_for);
  return text;
}

/// Of a process, which may have been there for long when its rank joins: what it has used since it
/// was started is not to be divided by the rank's time.
double cores_in_use(const ProcessUse& before, const ProcessUse& after, double seconds) {
  return std::max(0.0, after.cpu_seconds - before.cpu_seconds) / std::max(1e-3, seconds);
}

RankRow row_of(const HostLook& before, const HostLook& after, const RankLook& rank) {
  const RankLook* found = find_rank(before, rank);
  const RankLook none;
  const RankLook& was = found == nullptr ? none : *found;
  const FlightRecord& record = rank.record;
  const double since = found == nullptr ? record.started : was.record.taken;
  const double seconds = std::max(1e-3, record.taken - since);
  RankRow row{.rank = record.rank,
              .pid = rank.pid,
              .operations = operation_rates(was.record.totals, record.totals, seconds),
              .waits = clamped_share(record.waited - was.record.waited, seconds),
              .late = clamped_share(static_cast<double>(grown(was.late, rank.late)),
                                    static_cast<double>(grown(was.looks, rank.looks))),
              .gpus = {},
              .doing = doing_of(record)};
  for (const OperationRate& one : row.operations) {
    row.calls += one.calls;
    row.bytes += one.bytes;
  }
  const auto now = after.processes.find(rank.pid);
  const auto then = before.processes.find(rank.pid);
  if (now != after.processes.end()) {
    row.cpu = then == before.processes.end()
                  ? cores_in_use({}, now->second, now->second.lived)
                  : cores_in_use(then->second, now->second, after.taken - before.taken);
    row.resident_bytes = now->second.resident_bytes;
    row.state = now->second.state;
  }
  if (row.state == 'T' || row.state == 't') {
    row.doing = "stopped" + (row.doing.empty() ? "" : "; " + row.doing);
  }
  if (after.gpus) {
    if (const auto used = after.gpus->find(rank.pid); used != after.gpus->end()) {
      row.gpus = used->second;
    }
  }
  return row;
}

/// Who is late most often is whom the others wait for.
std::string straggler_of(const std::vector<RankRow>& ranks) {
  const auto worst = std::ranges::max_element(ranks, {}, &RankRow::late);
  if (ranks.size() < 2 || worst->late < straggler_share) {
    return "";
  }
  double waits = 0;
  for (const RankRow& one : ranks) {
    waits += &one == &*worst ? 0 : one.waits;
  }
  return fmt::format(
      "rank {} keeps others waiting: late in {:.0f} % of the looks; they wait {:.0f} % of "
      "the time, it {:.0f} %",
      worst->rank, 100 * worst->late, 100 * waits / static_cast<double>(ranks.size() - 1),
      100 * worst->waits);
}

JobRows begin_job(const HostLook& after, const RankLook& first) {
  JobRows job{.job = first.record.job,
              .command = "?",
              .user = "",
              .size = first.record.size,
              .hosts = first.record.hosts,
              .failure = "",
              .ranks = {},
              .straggler = ""};
  if (const auto process = after.processes.find(first.pid); process != after.processes.end()) {
    job.command = process->second.command;
    job.user = process->second.user;
  }
  return job;
}

nlohmann::ordered_json row_json(const RankRow& row) {
  nlohmann::ordered_json json = {{"rank", row.rank},
                                 {"pid", row.pid},
                                 {"calls_per_s", row.calls},
                                 {"bytes_per_s", row.bytes},
                                 {"operations", nlohmann::ordered_json::array()},
                                 {"wait_share", row.waits},
                                 {"late_share", row.late},
                                 {"cpu_cores", row.cpu},
                                 {"resident_bytes", row.resident_bytes},
                                 {"state", std::string(1, row.state)},
                                 {"doing", row.doing}};
  for (const OperationRate& one : row.operations) {
    json["operations"].push_back(
        {{"operation", one.operation}, {"calls_per_s", one.calls}, {"bytes_per_s", one.bytes}});
  }
  if (row.gpus) {
    using Json = nlohmann::ordered_json;
    json["gpu_bytes"] = row.gpus->bytes ? Json(*row.gpus->bytes) : Json();
    json["gpu_busy"] = row.gpus->busy ? Json(*row.gpus->busy) : Json();
  }
  return json;
}

}  // namespace

const char* name(RankOrder order) noexcept {
  switch (order) {
    case RankOrder::rank:
      return "rank";
    case RankOrder::waits:
      return "wait";
    case RankOrder::late:
      return "late";
    case RankOrder::bytes:
      return "bytes";
    case RankOrder::cpu:
      return "cpu";
  }
  return "unknown order";
}

std::vector<RankOrder> all_rank_orders() {
  return {RankOrder::rank, RankOrder::waits, RankOrder::late, RankOrder::bytes, RankOrder::cpu};
}

HostRows rows_between(const HostLook& before, const HostLook& after) {
  HostRows rows{.has_gpus = after.gpus.has_value(), .jobs = {}, .unreadable = after.unreadable};
  for (const RankLook& rank : after.ranks) {
    if (rows.jobs.empty() || rows.jobs.back().job != rank.record.job) {
      rows.jobs.push_back(begin_job(after, rank));
    }
    JobRows& job = rows.jobs.back();
    job.age = std::max(job.age, rank.record.taken - rank.record.started);
    job.failure = job.failure.empty() ? rank.record.failure : job.failure;
    job.ranks.push_back(row_of(before, after, rank));
  }
  for (JobRows& job : rows.jobs) {
    job.straggler = straggler_of(job.ranks);
  }
  return rows;
}

void sort_ranks(HostRows& rows, RankOrder order) {
  const auto key = [order](const RankRow& row) -> double {
    switch (order) {
      case RankOrder::rank:
        return -row.rank;
      case RankOrder::waits:
        return row.waits;
      case RankOrder::late:
        return row.late;
      case RankOrder::bytes:
        return row.bytes;
      case RankOrder::cpu:
        return row.cpu;
    }
    return 0;
  };
  for (JobRows& job : rows.jobs) {
    std::ranges::stable_sort(job.ranks,
                             [&](const RankRow& a, const RankRow& b) { return key(a) > key(b); });
  }
}

std::string to_json(const HostRows& rows) {
  nlohmann::ordered_json jobs = nlohmann::ordered_json::array();
  for (const JobRows& job : rows.jobs) {
    nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
    for (const RankRow& row : job.ranks) {
      ranks.push_back(row_json(row));
    }
    jobs.push_back({{"job", job.job},
                    {"command", job.command},
                    {"user", job.user},
                    {"size", job.size},
                    {"hosts", job.hosts},
                    {"age_s", job.age},
                    {"failure", job.failure},
                    {"straggler", job.straggler},
                    {"ranks", std::move(ranks)}});
  }
  return nlohmann::ordered_json{{"jobs", std::move(jobs)}, {"unreadable", rows.unreadable}}.dump();
}

}  // namespace sprat::cli
