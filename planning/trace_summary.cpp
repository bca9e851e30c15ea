// Slices become intervals of each rank, and what overlaps computing counts as computing.
#include "planning/trace_summary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "comm/base/check.hpp"
#include "planning/foreign_text.hpp"

namespace sprat::planning {
namespace {

struct Interval {
  double begin = 0, end = 0;
};

/// Sorted, without overlap.
// Slices of many threads meet in one line of time.
std::vector<Interval> united(std::vector<Interval> all) {
  std::ranges::sort(all, {}, &Interval::begin);
  std::vector<Interval> sum;
  for (const Interval& one : all) {
    if (!sum.empty() && one.begin <= sum.back().end) {
      sum.back().end = std::max(sum.back().end, one.end);
    } else {
      sum.push_back(one);
    }
  }
  return sum;
}

double length(const std::vector<Interval>& intervals) {
  double sum = 0;
  for (const Interval& one : intervals) {
    sum += one.end - one.begin;
  }
  return sum;
}

/// Both sorted, without overlap.
std::vector<Interval> without(const std::vector<Interval>& from,
                              const std::vector<Interval>& taken) {
  std::vector<Interval> rest;
  auto next = taken.begin();
  for (Interval one : from) {
    while (next != taken.end() && next->end <= one.begin) {
      ++next;
    }
    for (auto cut = next; cut != taken.end() && cut->begin < one.end; ++cut) {
      if (cut->begin > one.begin) {
        rest.push_back({one.begin, cut->begin});
      }
      one.begin = std::max(one.begin, cut->end);
    }
    if (one.begin < one.end) {
      rest.push_back(one);
    }
  }
  return rest;
}

std::vector<Interval> joined(std::vector<Interval> a, const std::vector<Interval>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return united(std::move(a));
}

/// What a slice counts as. The order is that in which they hide each other.
enum class Activity { computing, stalling, communicating, loading, nothing };

/// By the categories that our traces have; a receive holds the rank that waits for it, and stands
/// among what the rank computes.
Activity activity_of(const TraceSlice& slice) {
  static const std::set<std::string, std::less<>> moving = {"messages", "collectives", "travels",
                                                            "gathers",  "reduces",     "waits"};
  static const std::set<std::string, std::less<>> tiers = {"tier", "loader", "checkpoint"};
  if (slice.kind == "steps") {
    return Activity::nothing;  // a frame around all else
  }
  if (slice.kind == "stalls") {
    return Activity::stalling;
  }
  if (moving.contains(slice.kind) || slice.name.find("RECV") != std::string::npos) {
    return Activity::communicating;
  }
  return tiers.contains(slice.kind) ? Activity::loading : Activity::computing;
}

/// What one rank did, as intervals.
struct RankIntervals {
  std::map<Activity, std::vector<Interval>> of;
  std::vector<Interval> standing;  ///< Amid what it computes: waits and stalls.
  std::vector<Interval> early;  ///< It waits for what nobody had sent yet: for others' computing.
  std::vector<Interval> batches, checkpoints;

  void add(const TraceSlice& slice) {
    const Activity activity = activity_of(slice);
    const Interval whole{slice.begin, slice.end};
    if (slice.kind == "waits" || activity == Activity::stalling) {
      standing.push_back(whole);
    }
    if (slice.kind == "loader") {
      batches.push_back(whole);
    } else if (slice.kind == "checkpoint") {
      checkpoints.push_back(whole);
    }
    Interval counted = whole;
    if (slice.sent > slice.begin) {
      counted.begin = std::min(slice.sent, slice.end);
      early.push_back({slice.begin, counted.begin});
    }
    of[activity].push_back(counted);
  }
};

/// "3F7" and "0F1" are one kind of work: digits say stage and micro-batch.
std::string work_of(const std::string& name) {
  std::string letters;
  std::ranges::copy_if(name, std::back_inserter(letters),
                       [](char letter) { return letter < '0' || letter > '9'; });
  return letters.empty() ? name : letters;
}

/// Each kind counts where none before it is under way, so the shares add up to 1.
RankTimes times_of(std::int64_t rank, RankIntervals& intervals, double seconds) {
  auto& of = intervals.of;
  const std::vector<Interval> computing =
      without(united(of[Activity::computing]), united(intervals.standing));
  const std::vector<Interval> stalled = joined(computing, of[Activity::stalling]);
  // A wait for a message that was not sent yet is in other ranks' hands, not the wire's.
  const std::vector<Interval> moving =
      joined(stalled, without(united(of[Activity::communicating]), united(intervals.early)));
  const std::vector<Interval> all = joined(moving, of[Activity::loading]);
  const double computed = length(computing), loaded_first = length(stalled);
  const double moved = length(moving), busy = length(all);
  return {.rank = rank,
          .computing = computed / seconds,
          .communicating = (moved - loaded_first) / seconds,
          .loading = (busy - moved + loaded_first - computed) / seconds,
          .idle = std::max(0.0, 1 - busy / seconds)};
}

/// What would make it shorter; the largest wait decides.
std::string remedy(const TraceSummary& summary) {
  constexpr double small = 0.1;
  const auto [least, most] = std::ranges::minmax_element(summary.ranks, {}, &RankTimes::computing);
  if (summary.communicating + summary.loading + summary.idle < small) {
    return "Waiting is less than a tenth: only faster computing makes it shorter.";
  }
  // The order of the questions is that of the sentence before: communication, loading, waiting.
  if (summary.communicating >= std::max(summary.idle, summary.loading)) {
    return "Send less or earlier: narrower gradients (gradient_wire), larger prefetch_units, "
           "larger "
           "micro-batches, or degrees that keep the busiest group inside of a host (sprat plan).";
  }
  if (summary.loading >= summary.idle) {
    if (summary.batches > summary.loading / 2) {
      return "Bring batches sooner: more data.reading.io_threads and memory_bytes (sprat io "
             "diagnose "
             "says what limits the files).";
    }
    if (summary.checkpoints > summary.loading / 2) {
      return "Save less often or beside the steps: a larger checkpoint.every, "
             "checkpoint.asynchronous, or a faster disk.";
    }
    return "Bring tapes and batches back earlier: a larger activation_loading_horizon, fewer "
           "offloaded activations, or a faster tier.";
  }
  // Waiting for others has two causes: others have more to do, or the schedule makes all wait.
  if (most->computing > (1 + small) * least->computing) {
    return fmt::format(
        "Cut elsewhere: rank {} computes {:.0f} % and rank {} {:.0f} % of the time "
        "(sprat partition).",
        most->rank, 100 * most->computing, least->rank, 100 * least->computing);
  }
  return "Ranks wait for each other: more micro-batches, or a schedule with less bubble (sprat "
         "pipeline --all).";
}

}  // namespace

TraceSummary summarise(const std::vector<TraceSlice>& slices) {
  require(!slices.empty(), "a trace without slices has no summary");
  double begin = slices.front().begin, end = slices.front().end, all_work = 0;
  std::map<std::int64_t, RankIntervals> ranks;
  std::map<std::string, double> work;
  for (const TraceSlice& slice : slices) {
    begin = std::min(begin, slice.begin);
    end = std::max(end, slice.end);
    ranks[slice.rank].add(slice);
    if (activity_of(slice) == Activity::computing) {
      work[work_of(slice.name)] += slice.end - slice.begin;
      all_work += slice.end - slice.begin;
    }
  }
  TraceSummary summary;
  summary.seconds = end - begin;
  // A trace of moments has no shares; its one sentence is that it took no time.
  const double seconds = summary.seconds > 0 ? summary.seconds : 1;
  for (auto& [rank, intervals] : ranks) {
    const RankTimes times = times_of(rank, intervals, seconds);
    // Means of ranks: a second that one of eight ranks waits is an eighth of a second.
    const auto count = static_cast<double>(ranks.size());
    summary.computing += times.computing / count;
    summary.communicating += times.communicating / count;
    summary.loading += times.loading / count;
    summary.idle += times.idle / count;
    summary.batches += length(united(intervals.batches)) / seconds / count;
    summary.checkpoints += length(united(intervals.checkpoints)) / seconds / count;
    summary.ranks.push_back(times);
  }
  for (const auto& [name, seconds_of] : work) {
    if (all_work > 0 && seconds_of / all_work > summary.longest_share) {
      summary.longest = name;
      summary.longest_share = seconds_of / all_work;
    }
  }
  return summary;
}

std::string summary_text(const TraceSummary& summary) {
  const auto least = std::ranges::min_element(summary.ranks, {}, &RankTimes::computing);
  const double seconds = summary.seconds;
  return fmt::format(
      "{} rank{} took {:.4g} {} from the first slice to the last.\n"
      "They computed {:.1f} % of it on the mean, rank {} least with {:.1f} %.\n"
      "The rest is communication that nothing hides, {:.1f} %, loading, {:.1f} %, and waiting for "
      "other ranks, {:.1f} %.\n"
      "{}\n{}\n",
      summary.ranks.size(), summary.ranks.size() == 1 ? "" : "s",
      seconds < 1 ? seconds * 1e3 : seconds, seconds < 1 ? "ms" : "s", 100 * summary.computing,
      least->rank, 100 * least->computing, 100 * summary.communicating, 100 * summary.loading,
      100 * summary.idle,
      summary.longest.empty()
          ? std::string("Nothing was computed.")
          : fmt::format("Of what was computed \"{}\" took most, {:.1f} %.",
                        printable(summary.longest), 100 * summary.longest_share),
      remedy(summary));
}

}  // namespace sprat::planning
