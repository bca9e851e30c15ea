#include "cli/top/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>

#include "cli/progress/live_line.hpp"
#include "cli/tree.hpp"

namespace sprat::cli {
namespace {

std::string percent(double share) { return fmt::format("{:.0f}%", 100 * share); }

/// "999", "1.2k", "34M": three digits, so that columns stay narrow and rates comparable.
std::string short_count(double value) {
  constexpr std::array suffixes = {"", "k", "M", "G", "T"};
  std::size_t suffix = 0;
  for (; value >= 999.5 && suffix + 1 < suffixes.size(); ++suffix) {
    value /= 1000;
  }
  const bool fraction = suffix > 0 && value < 9.95;
  return fmt::format("{:.{}f}{}", value, fraction ? 1 : 0, suffixes[suffix]);
}

std::string byte_rate(double bytes) {
  return readable_bytes(static_cast<std::size_t>(std::llround(std::min(bytes, 1e18))));
}

std::string operations_cell(const RankRow& row) {
  std::string text;
  for (const OperationRate& one : row.operations) {
    text += fmt::format("{}{} {}/s", text.empty() ? "" : ", ", one.operation,
                        one.bytes > 0 ? byte_rate(one.bytes) : short_count(one.calls));
  }
  return text;
}

std::string gpu_cell(const RankRow& row) {
  return row.gpus && row.gpus->busy ? percent(*row.gpus->busy) : "";
}

/// A column has the same width at every look, so that numbers change and do not move.
struct TableColumn {
  const char* title;
  std::size_t width;
  int importance;  ///< The higher ones stay where there is little room.
  bool to_left;    ///< Text, which takes what is left if it is the last one.
  bool of_process, of_gpu;
  std::string (*cell)(const RankRow&);
};

constexpr std::array table_columns = {
    TableColumn{"RANK", 5, 100, false, false, false,
                [](const RankRow& row) { return std::to_string(row.rank); }},
    TableColumn{"PID", 8, 60, false, false, false,
                [](const RankRow& row) { return std::to_string(row.pid); }},
    TableColumn{"CALLS/S", 8, 70, false, false, false,
                [](const RankRow& row) { return short_count(row.calls); }},
    TableColumn{"BYTES/S", 11, 80, false, false, false,
                [](const RankRow& row) { return byte_rate(row.bytes); }},
    TableColumn{"WAIT", 6, 95, false, false, false,
                [](const RankRow& row) { return percent(row.waits); }},
    TableColumn{"LATE", 6, 90, false, false, false,
                [](const RankRow& row) { return percent(row.late); }},
    TableColumn{"CPU", 7, 75, false, true, false,
                [](const RankRow& row) { return percent(row.cpu); }},
    TableColumn{"RSS", 11, 50, false, true, false,
                [](const RankRow& row) { return readable_bytes(row.resident_bytes); }},
    TableColumn{"GPU", 6, 65, false, true, true, gpu_cell},
    TableColumn{"GPU MEM", 11, 55, false, true, true,
                [](const RankRow& row) {
                  return row.gpus && row.gpus->bytes ? readable_bytes(*row.gpus->bytes)
                                                     : std::string();
                }},
    TableColumn{"  NOW", 42, 40, true, false, false,
                [](const RankRow& row) { return row.doing.empty() ? "  -" : "  " + row.doing; }},
    TableColumn{"  BY OPERATION", 32, 30, true, false, false,
                [](const RankRow& row) { return "  " + operations_cell(row); }},
};

/// Where nothing else has room, a column of text has this much, or is left out.
constexpr std::size_t least_text = 20;

std::vector<std::size_t> columns_that_fit(bool gpus, std::size_t width) {
  std::vector<std::size_t> order(table_columns.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::erase_if(order, [&](std::size_t at) { return table_columns[at].of_gpu && !gpus; });
  std::ranges::stable_sort(order, [](std::size_t a, std::size_t b) {
    return table_columns[a].importance > table_columns[b].importance;
  });
  std::vector<std::size_t> fit;
  std::size_t taken = 0;
  for (const std::size_t at : order) {
    const TableColumn& column = table_columns[at];
    const std::size_t least = column.to_left ? least_text : column.width;
    if (width != 0 && taken + least > width) {
      break;  // nothing less important in its place, or columns would come and go oddly
    }
    taken += column.to_left && width != 0 ? std::min(column.width, width - taken) : column.width;
    fit.push_back(at);
  }
  std::ranges::sort(fit);
  return fit;
}

std::string cut_to(std::string text, std::size_t width) {
  if (width != 0 && text.size() > width) {
    text.resize(width);
    if (width > 8) {
      text.replace(width - 2, 2, "..");
    }
  }
  return text;
}

/// `cell` says what stands in a column.
template <class Cell>
std::string line_of(const std::vector<std::size_t>& columns, std::size_t width, const Cell& cell) {
  std::string line;
  for (const std::size_t at : columns) {
    const TableColumn& column = table_columns[at];
    const bool last = at == columns.back();
    if (!column.to_left) {
      line += fmt::format("{:>{}}", cell(column), column.width);
    } else if (last) {
      line += cell(column);
    } else {
      line += fmt::format("{:<{}}", cut_to(cell(column), column.width), column.width);
    }
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return cut_to(std::move(line), width);
}

std::string job_line(const JobRows& job) {
  std::string line = fmt::format("{}: {} of {} rank{} here, {} host{}, {}", job.job,
                                 job.ranks.size(), job.size, job.size == 1 ? "" : "s", job.hosts,
                                 job.hosts == 1 ? "" : "s", spelled_age(job.age));
  line += job.user.empty() ? "" : ", of " + job.user;
  return line;
}

void add_job(std::vector<std::string>& lines, const JobRows& job,
             const std::vector<std::size_t>& columns, std::size_t width) {
  lines.push_back(cut_to(job_line(job), width));
  lines.push_back(cut_to("  " + job.command, width));
  if (!job.failure.empty()) {
    lines.push_back(cut_to("  failed: " + job.failure, width));
  }
  lines.push_back(
      line_of(columns, width, [](const TableColumn& column) { return std::string(column.title); }));
  std::set<pid_t> shown;
  for (const RankRow& row : job.ranks) {
    const bool repeats_process = !shown.insert(row.pid).second;
    lines.push_back(line_of(columns, width, [&](const TableColumn& column) {
      // Ranks that are threads share what their process has; said twice, it would be added up.
      return column.of_process && repeats_process ? "\"" : column.cell(row);
    }));
  }
  if (!job.straggler.empty()) {
    lines.push_back(cut_to("  " + job.straggler, width));
  }
}

}  // namespace

std::vector<std::string> table_of(const HostRows& rows, const TableSpace& space) {
  const std::vector<std::size_t> columns = columns_that_fit(rows.has_gpus, space.columns);
  std::vector<std::string> lines;
  for (const JobRows& job : rows.jobs) {
    if (!lines.empty()) {
      lines.emplace_back();
    }
    add_job(lines, job, columns, space.columns);
  }
  if (rows.jobs.empty()) {
    lines.push_back(cut_to("no process of this user is a rank of a Sprat job", space.columns));
  }
  for (const std::string& one : rows.unreadable) {
    lines.push_back(cut_to(one, space.columns));
  }
  if (space.lines > 0 && lines.size() > space.lines) {
    const std::size_t hidden = lines.size() - space.lines + 1;
    lines.resize(space.lines);
    lines.back() = cut_to(fmt::format("{} more lines have no room here", hidden), space.columns);
  }
  return lines;
}

}  // namespace sprat::cli
