#include "cli/io/bench.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "cli/job.hpp"
#include "cli/progress/live_line.hpp"
#include "cli/size_value.hpp"
#include "cli/whole_number.hpp"
#include "io/report/cause.hpp"
#include "sprat/communicator.hpp"
#include "sprat/config.hpp"

namespace sprat::cli {
namespace {

using io::figure;
using BenchJson = nlohmann::ordered_json;

struct IoBenchArguments {
  std::vector<std::string> paths;
  std::string format = "auto", token_type, shuffle = "full", reader = "auto";
  std::uint64_t length = 0, memory = 0;
  int batch = 1, decode_threads = 0;
  double seconds = 20;
  bool cold = false, as_json = false, quiet = false;
};

/// As a program says them: what is wrong with them is said in the same words.
LoaderOptions loader_options(const IoBenchArguments& request) {
  BenchJson json = {
      {"sources", {{{"paths", {"named below"}}, {"format", request.format}}}},
      {"batch", request.batch},
      {"order", {{"shuffle", request.shuffle}, {"length", request.length}}},
      {"reading", {{"reader", request.reader}, {"decode_threads", request.decode_threads}}}};
  if (!request.token_type.empty()) {
    json["sources"][0]["token_type"] = request.token_type;
  }
  if (request.memory > 0) {
    json["reading"]["memory_bytes"] = request.memory;
  }
  LoaderOptions options = parse_loader_options(json.dump());
  options.sources.front().paths = request.paths;  // names in no encoding have no form in JSON
  return options;
}

std::string bench_count(std::uint64_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

struct RateRow {
  std::string name;
  const std::vector<double>& mbps;
  const std::vector<double>& slowest;
  std::string more;
};

std::string rate_line(const RateRow& row, int ranks) {
  std::string line =
      fmt::format("  {:<46} {:>9}  {:<17}", row.name, figure(io::median_of(row.mbps)),
                  fmt::format("{} to {}", figure(std::ranges::min(row.mbps)),
                              figure(std::ranges::max(row.mbps))));
  if (ranks > 1) {
    line += fmt::format(" {:>9}", figure(io::median_of(row.slowest)));
  }
  return line + (row.more.empty() ? "" : "  " + row.more) + "\n";
}

std::string released_line(const io::BenchResult& result) {
  if (!result.released) {
    return "";
  }
  return fmt::format("before each turn the page cache was asked to let go of {} files{}\n",
                     result.released->files,
                     result.released->refused > 0
                         ? fmt::format("; of {} it could not be asked", result.released->refused)
                         : "");
}

BenchJson numbers_json(const std::vector<double>& sums, const std::vector<double>& slowest) {
  return {{"median_mbps", io::median_of(sums)},
          {"slowest_rank_mbps", io::median_of(slowest)},
          {"rounds_mbps", sums}};
}

int run_io_bench(const IoBenchArguments& arguments) {
  const LoaderOptions options = loader_options(arguments);
  // Whatever launched the ranks: alone this process is a job of one.
  return run_in_job(Config::from_environment(), 0, [&](Communicator& world) {
    io::BenchRequest request{
        .loader = options, .seconds = arguments.seconds, .cold = arguments.cold};
    LiveLine line(world.rank() == 0 && !arguments.quiet);
    request.tell = [&line](const std::string& what, int over, int of) {
      line.show({{fmt::format("turn {} of {}", over + 1, of), 2}, {what, 1}});
    };
    request.loader.rank = world.rank();
    request.loader.ranks = world.size();
    const io::GatherNumbers gather = [&world](double mine) {
      std::vector<double> all(static_cast<std::size_t>(world.size()));
      world.all_gather(elements(std::span<const double>(&mine, 1)), elements(std::span(all)))
          .wait();
      return all;
    };
    const io::BenchResult result = io::run_bench(request, gather);
    line.clear();
    if (world.rank() == 0) {
      fmt::print("{}", arguments.as_json ? io_bench_json(result) + "\n" : io_bench_text(result));
    }
    return 0;
  });
}

}  // namespace

std::string io_bench_text(const io::BenchResult& result) {
  const io::MeasuredLoader& loader = result.loader;
  std::string words = fmt::format(
      "{}, {} MB; {} of {} KB in the mean; {}\nthe loader {}\n{}\n{}{} of {:.2f} s each; "
      "medians\n\n",
      bench_count(result.files, "file"), figure(static_cast<double>(result.bytes) / 1e6),
      bench_count(result.samples, "sample"), figure(static_cast<double>(result.sample_bytes) / 1e3),
      bench_count(static_cast<std::uint64_t>(result.ranks), "rank"), result.reading,
      result.plan.about, released_line(result),
      bench_count(static_cast<std::uint64_t>(result.plan.rounds), "turn"),
      result.plan.turn_seconds);
  words += fmt::format("  {:<46} {:>9}  {:<17}{}\n", "", "MB/s", "from, to",
                       result.ranks > 1 ? "   slowest" : "");
  // In the order in which turns were taken, so that lines of one access stand together.
  for (const io::MeasuredWay& one : result.ways) {
    words += rate_line({.name = io::bench_way_text(one.way, result.sample_bytes),
                        .mbps = one.mbps,
                        .slowest = one.slowest_mbps,
                        .more = {}},
                       result.ranks);
  }
  words += rate_line({.name = "the loader",
                      .mbps = loader.mbps,
                      .slowest = loader.slowest_mbps,
                      .more = fmt::format("{} samples/s, {:.0f} % of the limit",
                                          figure(io::median_of(loader.samples_per_second)),
                                          100 * result.judgement.share)},
                     result.ranks);
  return words + "\n" + result.judgement.sentence + "\n";
}

std::string io_bench_json(const io::BenchResult& result) {
  BenchJson ways = BenchJson::array();
  for (const io::MeasuredWay& one : result.ways) {
    BenchJson way = numbers_json(one.mbps, one.slowest_mbps);
    way["way"] = io::bench_way_text(one.way, result.sample_bytes);
    ways.push_back(way);
  }
  // Rounds are kept, so that others may take other means of them.
  BenchJson loader = numbers_json(result.loader.mbps, result.loader.slowest_mbps);
  loader["samples_per_second"] = io::median_of(result.loader.samples_per_second);
  BenchJson json = {{"files", result.files},
                    {"bytes", result.bytes},
                    {"samples", result.samples},
                    {"sample_bytes", result.sample_bytes},
                    {"ranks", result.ranks},
                    {"reading", result.reading},
                    {"rounds", result.plan.rounds},
                    {"turn_seconds", result.plan.turn_seconds},
                    {"ways", ways},
                    {"loader", loader},
                    {"limit", io::name(result.judgement.limit)},
                    {"limit_mbps", result.judgement.limit_mbps},
                    {"share", result.judgement.share},
                    {"sentence", result.judgement.sentence}};
  if (result.released) {
    json["released_files"] = result.released->files;
    json["refused_files"] = result.released->refused;
  }
  return json.dump();
}

Action prepare_io_bench(CLI::App& app) {
  // Shared by the parser, which fills it, and the action.
  const auto r = std::make_shared<IoBenchArguments>();
  const auto size = SizeValue(false);  // 64M is 64 * 2^20
  app.add_option("PATH", r->paths, "Files, folders, or patterns with * and ?")->required();
  app.add_option("--batch", r->batch, "Samples of a step of all ranks together")
      ->check(WholeNumber(1))
      ->capture_default_str();
  app.add_option("--length", r->length, "Of tokens: samples are windows of so many");
  app.add_option("--shuffle", r->shuffle, "full, chunks or none")->capture_default_str();
  app.add_option("--format", r->format, "Of the files (sprat io index --help lists them)")
      ->capture_default_str();
  app.add_option("--token-type", r->token_type, "u16 or u32, of tokens without a header");
  app.add_option("--reader", r->reader, "The loader's: uring, pool or auto")->capture_default_str();
  app.add_option("--memory", r->memory, "The loader's memory_bytes (default: its own choice)")
      ->transform(size);
  app.add_option("--decode-threads", r->decode_threads, "The loader's (default: its own choice)")
      ->check(WholeNumber(0));
  app.add_option("--seconds", r->seconds, "Of all turns together")->capture_default_str();
  app.add_flag("--cold", r->cold, "Let go of the files' pages in the page cache before each turn");
  app.add_flag("--json", r->as_json, "One JSON object");
  app.add_flag("--quiet", r->quiet, "No line of how far it is on a terminal");
  return [r] { return run_io_bench(*r); };
}

}  // namespace sprat::cli
