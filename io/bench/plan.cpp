#include "io/bench/plan.hpp"

#include <algorithm>

#include "comm/base/check.hpp"
#include "io/report/cause.hpp"

namespace sprat::io {
namespace {

/// Blocks of MiBs keep a disk busy with few under way; samples may be short, and have as many as
/// the loader asks for.
constexpr int blocks_under_way = 16, samples_under_way = 64;
/// A median of five is not moved by two turns that something else disturbed.
constexpr double most_rounds = 5;
/// Shorter turns measure how readers start.
constexpr double least_turn_seconds = 0.3, least_seconds = 2, most_seconds = 86'400;

std::string bench_bytes_text(std::uint64_t bytes) {
  const auto number = static_cast<double>(bytes);
  return bytes >= 1'000'000 ? figure(number / 1e6) + " MB"
         : bytes >= 1'000   ? figure(number / 1e3) + " KB"
                            : figure(number) + " B";
}

std::string about_storage(const BenchFacts& facts) {
  const std::string kind(facts.where.kind);
  if (facts.where.takes_direct) {
    return facts.cold ? "storage is read directly, past the page cache, and through it (\"cached\")"
                      : "storage is read directly, past the page cache";
  }
  return facts.cold ? text(kind, " takes no direct reads, so storage is read through the page ",
                           "cache, from which the files' pages are let go of first")
                    : text(kind, " takes no direct reads: what the page cache has of these files ",
                           "comes from memory and counts as storage; --cold lets go of it first");
}

}  // namespace

std::string bench_way_text(const BenchWay& way, std::uint64_t sample_bytes) {
  const char* const how = way.direct ? ", directly" : ", cached";
  switch (way.access) {
    case BenchAccess::in_order:
      return text("files in order, 4 MiB, by ", way.kind->name, how);
    case BenchAccess::scattered:
      return text("samples anywhere, ", bench_bytes_text(sample_bytes), ", by ", way.kind->name,
                  how);
    case BenchAccess::cached:
      return "samples from the page cache, by preads";
  }
  return "";
}

BenchPlan plan_bench(const BenchFacts& facts) {
  require(facts.seconds >= least_seconds && facts.seconds <= most_seconds, "a bench of ",
          facts.seconds, " seconds: give it ", least_seconds,
          ", so that it measures more than how readers start, to ", most_seconds);
  BenchPlan plan{.ways = {}, .about = about_storage(facts)};
  for (const auto& [access, depth] : {std::pair(BenchAccess::in_order, blocks_under_way),
                                      std::pair(BenchAccess::scattered, samples_under_way)}) {
    for (const ReaderKind* kind : all_reader_kinds()) {
      if (!kind->refusal(facts.where).empty()) {
        continue;
      }
      if (facts.where.takes_direct) {
        plan.ways.push_back({.access = access, .kind = kind, .direct = true, .depth = depth});
      }
      // Through the page cache storage is measured only where the cache has nothing of it.
      if (facts.cold || !facts.where.takes_direct) {
        plan.ways.push_back({.access = access, .kind = kind, .direct = false, .depth = depth});
      }
    }
  }
  // One way is enough for memory: no reader copies faster than who calls pread himself.
  plan.ways.push_back({.access = BenchAccess::cached});
  const double all_turns = facts.seconds / static_cast<double>(plan.ways.size() + 1);
  // Few long rounds tell less than some short ones, as long as these are no mere beginnings.
  plan.rounds = static_cast<int>(std::clamp(all_turns / least_turn_seconds, 1.0, most_rounds));
  plan.turn_seconds = all_turns / plan.rounds;
  return plan;
}

}  // namespace sprat::io
