// `sprat trace`: what Chrome traces say, whether they are sound, pictures of them, and ranks' parts
// put together.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/command.hpp"
#include "cli/outline/completions.hpp"
#include "cli/trace/picture.hpp"
#include "cli/whole_number.hpp"
#include "comm/base/config.hpp"
#include "comm/base/whole_file.hpp"
#include "comm/timeline/chrome_trace.hpp"
#include "planning/trace_file.hpp"
#include "planning/trace_summary.hpp"
#include "sprat/error.hpp"

namespace sprat::cli {
namespace {

using comm::timeline::RankTimeline;

/// Clocks that are further apart are spoken of.
constexpr double tolerable_clock_error_us = 20;

// Traces of long runs are some hundred MB; they are read whole, since slices refer to each other.
planning::TraceFile read_trace(const std::string& path) {
  return planning::parse_trace(read_whole_file(path), path);
}

int summarise_trace(const std::string& path) {
  const planning::TraceFile trace = read_trace(path);
  fmt::print("{}", planning::summary_text(planning::summarise(trace.slices)));
  if (trace.clock_error_us > tolerable_clock_error_us) {
    fmt::print("Clocks of other hosts may be {:.0f} us from rank 0's.\n", trace.clock_error_us);
  }
  if (trace.dropped_events > 0) {
    fmt::print("The oldest {} events had no room and are missing.\n", trace.dropped_events);
  }
  return 0;
}

/// Perfetto's own reader, where the environment names it, has the last word.
int ask_trace_processor(const std::string& path) {
  const char* processor = environment("SPRAT_TRACE_PROCESSOR");
  if (processor == nullptr || *processor == '\0') {
    return 0;
  }
  const std::string query = "select count(*) as slices from slice";
  const std::string line =
      fmt::format("echo {} | {} {} -q /dev/stdin", quoted(query), quoted(processor), quoted(path));
  std::fflush(stdout);
  if (std::system(line.c_str()) != 0) {
    throw Error(ErrorCode::unavailable,
                fmt::format("{} (SPRAT_TRACE_PROCESSOR) does not read {}", processor, path));
  }
  return 0;
}

int check_trace(const std::string& path) {
  fmt::print("{}", planning::check_text(read_trace(path)));
  return ask_trace_processor(path);
}

int draw_trace(const std::string& path, const std::string& picture, std::optional<int> step) {
  const std::string name = std::filesystem::path(path).filename().string();
  const std::string svg =
      trace_svg(read_trace(path), step ? fmt::format("{}, step {}", name, *step) : name, step);
  write_whole_file(picture, svg);
  return 0;
}

/// FILE.JOB.rankN of all jobs, and not what a writer that was killed has left of one.
std::vector<std::string> parts_beside(const std::string& path) {
  const std::filesystem::path whole(path);
  const std::string prefix = whole.filename().string() + ".", mark = ".rank";
  std::vector<std::string> parts;
  const std::filesystem::path folder = whole.has_parent_path() ? whole.parent_path() : ".";
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    const std::size_t job_end = name.rfind(mark);
    const bool is_part = name.starts_with(prefix) && job_end != name.npos &&
                         job_end > prefix.size() &&
                         name.find_first_not_of("0123456789", job_end + mark.size()) == name.npos;
    if (is_part) {
      parts.push_back(entry.path().string());
    }
  }
  return parts;
}

/// A part of some MiB, of which this much is kept.
struct TracePart {
  std::string path, job;
  int rank = 0, size = 1;
  comm::timeline::RankOutline outline;
};

RankTimeline read_part(const std::string& path) {
  return comm::timeline::unpacked(std::as_bytes(std::span<const char>(read_whole_file(path))),
                                  path);
}

TracePart look_at(const std::string& path) {
  const RankTimeline rank = read_part(path);
  return {.path = path,
          .job = rank.job,
          .rank = rank.rank,
          .size = rank.size,
          .outline = comm::timeline::outline_of(rank)};
}

/// Of one job.
void join_parts(const std::string& path, std::vector<TracePart> parts) {
  std::ranges::sort(parts, {}, &TracePart::rank);
  const int size = parts.front().size;
  std::vector<comm::timeline::RankOutline> outlines;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0 && (parts[i].size != size || parts[i].rank == parts[i - 1].rank)) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{} is of rank {} of {} and {} of rank {} of {}, both of the job {}; "
                              "name each part once",
                              parts[i - 1].path, parts[i - 1].rank, parts[i - 1].size,
                              parts[i].path, parts[i].rank, parts[i].size, parts[i].job));
    }
    outlines.push_back(std::move(parts[i].outline));
  }
  WholeFile file(path);
  comm::timeline::ChromeTrace trace(comm::timeline::outline_of(std::move(outlines)),
                                    [&file](std::string_view piece) { file.append(piece); });
  for (const TracePart& part : parts) {
    trace.add(read_part(part.path));
  }
  trace.end();
  file.keep();
  fmt::print("{}: {} of {} ranks\n", path, parts.size(), size);
}

/// "t.json" becomes "t.JOB.json".
std::string path_for(const std::string& path, const std::string& job) {
  const std::filesystem::path whole(path);
  const std::string name = whole.stem().string() + "." + job + whole.extension().string();
  return (whole.parent_path() / name).string();
}

int join_jobs(const std::string& path, std::vector<std::string> parts) {
  if (parts.empty()) {
    parts = parts_beside(path);
  }
  std::map<std::string, std::vector<TracePart>> jobs;
  for (const std::string& path_of_part : parts) {
    TracePart part = look_at(path_of_part);
    jobs[std::string(part.job)].push_back(std::move(part));
  }
  if (jobs.empty()) {
    throw Error(ErrorCode::unavailable,
                fmt::format("no parts {}.JOB.rank*; name them behind the file to write", path));
  }
  for (auto& [job, of_job] : jobs) {
    join_parts(jobs.size() == 1 ? path : path_for(path, job), std::move(of_job));
  }
  return 0;
}

Action prepare_trace(CLI::App& app) {
  app.require_subcommand(1);
  struct Request {
    std::string path;
    std::vector<std::string> parts;
    std::string picture;
    std::optional<int> step;
  };
  auto r = std::make_shared<Request>();
  CLI::App* summary =
      app.add_subcommand("summary", "Where the time went, and what to change, in five sentences");
  summary->add_option("FILE", r->path, "A trace")->required();
  CLI::App* check = app.add_subcommand("check", "Whether it is a sound Chrome trace");
  check->add_option("FILE", r->path, "A trace")->required();
  CLI::App* picture = app.add_subcommand("picture", "What each rank did when, as an SVG");
  picture->add_option("FILE", r->path, "A trace")->required();
  picture->add_option("-o,--output", r->picture, "The SVG to write")->required();
  picture->add_option("--step", r->step, "That training step alone")->check(WholeNumber(1));
  CLI::App* join = app.add_subcommand("join", "One trace of each job's parts that ranks left");
  join->add_option("FILE", r->path, "The trace to write")->required();
  join->add_option("PART", r->parts, "Parts, from several hosts perhaps; else all FILE.JOB.rank*");
  return [=] {
    if (*join) {
      return join_jobs(r->path, r->parts);
    }
    if (*picture) {
      return draw_trace(r->path, r->picture, r->step);
    }
    return *check ? check_trace(r->path) : summarise_trace(r->path);
  };
}

}  // namespace

extern const Command trace_command;
const Command trace_command = {
    "trace",
    "Where the time of a traced run went, and what to change",
    R"(Reads Chrome traces, the form of chrome://tracing and ui.perfetto.dev: those of `sprat train --trace`, `sprat bench --trace` and
SPRAT_TRACE, those that `sprat pipeline --trace` writes of a schedule in virtual time, and any other whose processes are ranks and
whose slices have the same categories: computes, waits, stalls, messages, gathers, reduces, collectives, tier, loader, checkpoint.

summary: computing counts first, except for waits and stalls amid it: what goes on beside it is hidden. The rest is communication or
loading where one of the rank's own is under way, and else waiting for other ranks, as are receives of what was not sent yet.
check: every slice has its times, slices of a thread lie in each other or side by side, and flows have both ends, each in a slice,
in the order of time; else it says which event is wrong. SPRAT_TRACE_PROCESSOR names Perfetto's trace_processor, which then reads
the file, too.
picture: a row for each rank: what it computes, with waits and stalls over it, then what it sends, gathers and sums, then what it
loads and stores. Slices too narrow to be seen become one. --step N draws the step of that number; a whole run is hardly readable.
join: a rank that fails, or whose program does not ask rank 0 to collect, leaves its part as FILE.JOB.rankN on its own host. Parts of
several jobs, as those of a program that has several NCCL communicators, become a file each: t.json becomes t.JOB.json.

Examples:
  sprat train examples/gpt-jargon.json --virtual-ranks 4 --steps 20 --trace t.json
  sprat trace summary t.json
  sprat trace check t.json
  sprat trace picture t.json --step 3 -o t.svg
  sprat pipeline --schedule 1f1b -p 4 -m 8 --communicate --latency 0.1 --trace p.json
  sprat trace join t.json
  sprat trace join t.json here/t.json.*.rank* there/t.json.*.rank*
)",
    prepare_trace,
};

}  // namespace sprat::cli
