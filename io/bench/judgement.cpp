#include "io/bench/judgement.hpp"

#include <algorithm>
#include <cmath>

#include "comm/base/check.hpp"
#include "io/report/cause.hpp"

namespace sprat::io {
namespace {

/// From this share of the limit on there is nothing to gain but by another limit. Turns of a
/// machine that others use differ by a tenth.
constexpr double near_the_limit = 0.85;
/// Storage cannot give so much more than it gave beside: it was the page cache.
constexpr double beyond_storage = 1.1;
/// Threads that are busy for longer are what all others wait for.
constexpr double busy_stage = 0.85;
/// Who takes batches without looking at them waits hardly ever if batches lie ready.
constexpr double hardly_waits = 0.1;
/// It pays to read in order if that is so much faster.
constexpr double worth_chunks = 1.5;

struct BestWay {
  double mbps = 0;
  BenchWay way;
};

BestWay best_of(const std::vector<MeasuredWay>& ways, BenchAccess access) {
  BestWay best;
  for (const MeasuredWay& one : ways) {
    const double mbps = one.way.access == access ? median_of(one.mbps) : 0;
    if (mbps > best.mbps) {
      best = {.mbps = mbps, .way = one.way};
    }
  }
  return best;
}

/// Of the way in which the loader reads; what the best gives where that was not measured.
BestWay way_of(const MeasuredLoader& loader, const std::vector<MeasuredWay>& ways,
               BenchAccess access) {
  for (const MeasuredWay& one : ways) {
    if (one.way.access == access && one.way.kind != nullptr &&
        one.way.kind->name == loader.reader && one.way.direct == loader.direct) {
      return {.mbps = median_of(one.mbps), .way = one.way};
    }
  }
  return best_of(ways, access);
}

std::string reader_text(const BenchWay& way) {
  return text(way.kind->name, way.direct ? " directly" : " through the page cache");
}

/// The way that shows what the loader's own lacks: another reader, else one past the page cache.
BestWay better_than(const BestWay& own, const std::vector<MeasuredWay>& ways) {
  std::vector<MeasuredWay> alike = ways;
  std::erase_if(alike, [&](const MeasuredWay& one) { return one.way.direct != own.way.direct; });
  const BestWay best = best_of(alike, own.way.access);
  return own.mbps < near_the_limit * best.mbps ? best : best_of(ways, own.way.access);
}

std::string remedy_of(const BenchWay& own, const BenchWay& better) {
  if (own.direct == better.direct) {
    return text("; say reading.reader \"", better.kind->name, "\"");
  }
  return own.direct ? ""
                    : "; it is so until the page cache has these files: then they come from memory";
}

/// Sums over a loader's turns.
struct LoaderTurns {
  double cached_bytes = 0, bytes = 0, seconds = 0, waited = 0;
  std::string busiest;
  int threads = 0;
  double busy = 0;  // share of the busiest stage's threads' time
};

LoaderTurns sum_up(const std::vector<Interval>& intervals) {
  LoaderTurns turns;
  std::vector<StageInterval> stages;
  for (const Interval& one : intervals) {
    turns.cached_bytes += static_cast<double>(one.bytes.page_cache);
    turns.bytes += static_cast<double>(one.bytes.page_cache + one.bytes.file_system);
    turns.seconds += one.seconds;
    turns.waited += one.consumer_wait * one.seconds;
    stages.resize(std::max(stages.size(), one.stages.size()));
    for (std::size_t i = 0; i < one.stages.size(); ++i) {
      stages[i] = {.name = one.stages[i].name,
                   .threads = one.stages[i].threads,
                   .busy_seconds = stages[i].busy_seconds + one.stages[i].busy_seconds};
    }
  }
  // One full stage holds up all others, however idle these are.
  for (const StageInterval& stage : stages) {
    const double busy = stage.threads > 0 && turns.seconds > 0
                            ? stage.busy_seconds / (stage.threads * turns.seconds)
                            : 0;
    if (busy > turns.busy) {
      turns.busy = busy;
      turns.busiest = stage.name;
      turns.threads = stage.threads;
    }
  }
  return turns;
}

std::string percent(double share) { return text(std::lround(100 * share), " %"); }

/// What is read in order is worth a word to those who read samples anywhere.
std::string hint_of_chunks(const std::vector<MeasuredWay>& ways, const MeasuredLoader& loader) {
  const double in_order = best_of(ways, BenchAccess::in_order).mbps;
  const double scattered = best_of(ways, BenchAccess::scattered).mbps;
  return loader.scattered && in_order >= worth_chunks * scattered
             ? text("; shuffle \"chunks\" reads neighbours together, up to ", figure(in_order),
                    " MB/s here")
             : "";
}

}  // namespace

std::string_view name(BenchJudgement::Limit limit) noexcept {
  switch (limit) {
    case BenchJudgement::Limit::storage:
      return "storage";
    case BenchJudgement::Limit::page_cache:
      return "page_cache";
    case BenchJudgement::Limit::decode:
      return "decode";
    case BenchJudgement::Limit::reader:
      return "reader";
    case BenchJudgement::Limit::consumer:
      return "consumer";
    case BenchJudgement::Limit::loader:
      return "loader";
  }
  return "?";
}

double median_of(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

BenchJudgement judge_bench(const std::vector<MeasuredWay>& ways, const MeasuredLoader& loader) {
  using What = BenchJudgement::Limit;
  const BenchAccess access = loader.scattered ? BenchAccess::scattered : BenchAccess::in_order;
  const BestWay storage = best_of(ways, access), cached = best_of(ways, BenchAccess::cached);
  const LoaderTurns turns = sum_up(loader.intervals);
  const double mbps = median_of(loader.mbps);
  // Long reads do not tell where their bytes came from; a rate that storage has not does.
  const bool from_memory = turns.cached_bytes > 0.5 * turns.bytes ||
                           (mbps > beyond_storage * storage.mbps && cached.mbps > storage.mbps);
  const double limit = from_memory ? cached.mbps : storage.mbps;
  BenchJudgement result{.limit_mbps = limit, .share = limit > 0 ? mbps / limit : 0, .sentence = {}};
  const std::string gives =
      text("the loader gives ", figure(mbps), " MB/s, ", percent(result.share), " of the ",
           figure(limit), " MB/s that ",
           from_memory ? "one thread's preads of the page cache give" : "storage gives");
  const BestWay own = way_of(loader, ways, access);
  const auto say = [&](What which, const std::string& sentence) {
    result.limit = which;
    result.sentence = sentence;
    return result;
  };
  // In the order of how sure each is: a limit that is reached explains all else.
  if (result.share >= near_the_limit) {
    return from_memory
               ? say(What::page_cache, text("copies out of the page cache limit: ", gives))
               : say(What::storage, text("storage limits: ", gives, hint_of_chunks(ways, loader)));
  }
  if (turns.busy >= busy_stage) {
    return say(What::decode,
               text("decode limits: ", turns.busiest, " keeps its ", turns.threads,
                    " threads busy for ", percent(turns.busy), " of the time; ", gives,
                    "; give it more decode_threads, or records that take less work"));
  }
  // Readers were measured on storage alone, so they say nothing of copies.
  if (!from_memory && own.mbps < near_the_limit * storage.mbps) {
    const BestWay better = better_than(own, ways);
    return say(What::reader,
               text("the reader limits: ", reader_text(own.way), " reads ", figure(own.mbps),
                    " MB/s, and ", reader_text(better.way), " ", figure(better.mbps), "; ", gives,
                    remedy_of(own.way, better.way)));
  }
  if (turns.seconds > 0 && turns.waited < hardly_waits * turns.seconds) {
    return say(What::consumer,
               text("who takes batches limits: they lie ready for ",
                    percent(1 - turns.waited / turns.seconds), " of the time; ", gives));
  }
  return say(What::loader,
             text("the loader limits: neither storage nor decode is busy all of the time; ", gives,
                  "; larger batches or more reading.memory_bytes let it read further ahead"));
}

}  // namespace sprat::io
