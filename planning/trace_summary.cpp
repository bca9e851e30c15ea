// Slices become intervals of each rank, and what overlaps computing counts as computing.
#include "planning/trace_summary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "comm/base/check.hpp"

namespace sprat::planning {
namespace {

using Events = nlohmann::json;

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

std::vector<Interval> joined(std::vector<Interval> a, const std::vector<Interval>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return united(std::move(a));
}

/// Files come from many tools, so what a number stands for is named with the event that lacks it.
double number_of(const Events& event, const char* key, const std::string& where) {
  const auto found = event.find(key);
  require(found != event.end() && found->is_number(), where, " has no number \"", key, "\"");
  return found->get<double>();
}

std::int64_t id_of(const Events& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

std::string word_of(const Events& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_string() ? found->get<std::string>() : "";
}

/// Reads events in the order of the file; threads are pairs of pid and tid.
class TraceReader {
 public:
  explicit TraceReader(std::string origin) : origin_(std::move(origin)) {}

  void add(const Events& event) {
    const std::string where = text(origin_, ": event ", ++number_);
    require(event.is_object(), where, " is no object");
    const std::string phase = word_of(event, "ph");
    constexpr double us = 1e-6;
    TraceSlice slice{.rank = id_of(event, "pid"),
                     .thread = id_of(event, "tid"),
                     .name = word_of(event, "name"),
                     .kind = word_of(event, "cat")};
    if (phase == "X") {
      slice.begin = number_of(event, "ts", where) * us;
      slice.end = slice.begin + number_of(event, "dur", where) * us;
      slices_.push_back(std::move(slice));
    } else if (phase == "B") {
      slice.begin = number_of(event, "ts", where) * us;
      open_[{slice.rank, slice.thread}].push_back(std::move(slice));
    } else if (phase == "E") {
      // An end has no name: it ends what its thread began last.
      std::vector<TraceSlice>& open = open_[{slice.rank, slice.thread}];
      require(!open.empty(), where, " ends a slice that did not begin");
      open.back().end = number_of(event, "ts", where) * us;
      slices_.push_back(std::move(open.back()));
      open.pop_back();
    } else if (phase == "s" || phase == "f") {
      flows_[event.contains("id") ? event["id"].dump() : ""] += phase == "s" ? 1 : -1;
    }
  }

  std::vector<TraceSlice> finish() {
    for (const auto& [thread, open] : open_) {
      require(open.empty(), origin_, ": a slice of process ", thread.first, " never ends");
    }
    // A flow is an arrow between two slices; one end of it points nowhere.
    for (const auto& [id, count] : flows_) {
      require(count == 0, origin_, ": flow ", id, " starts or ends alone");
    }
    require(!slices_.empty(), origin_, ": a trace without slices");
    check_nesting();
    return std::move(slices_);
  }

 private:
  /// Viewers draw a thread's slices in each other or side by side, and nothing else.
  void check_nesting() const {
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<const TraceSlice*>> threads;
    for (const TraceSlice& slice : slices_) {
      threads[{slice.rank, slice.thread}].push_back(&slice);
    }
    constexpr double rounding = 1e-9;  // files have microseconds with some digits
    for (auto& [thread, of] : threads) {
      std::ranges::sort(of, [](const TraceSlice* a, const TraceSlice* b) {
        return a->begin != b->begin ? a->begin < b->begin : a->end > b->end;
      });
      // Those that the next slice may lie in, the innermost last.
      std::vector<const TraceSlice*> around;
      for (const TraceSlice* slice : of) {
        while (!around.empty() && around.back()->end <= slice->begin + rounding) {
          around.pop_back();
        }
        require(around.empty() || slice->end <= around.back()->end + rounding, origin_, ": \"",
                slice->name, "\" of process ", thread.first, ", thread ", thread.second,
                " overlaps \"", around.empty() ? "" : around.back()->name, "\"");
        around.push_back(slice);
      }
    }
  }

  std::string origin_;
  int number_ = 0;
  std::vector<TraceSlice> slices_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<TraceSlice>> open_;
  std::map<std::string, int> flows_;
};

/// What a slice counts as. The order is that in which they hide each other.
enum class Activity { computing, communicating, loading };

/// By the categories that our traces have; a receive holds the rank that waits for it, and stands
/// among what the rank computes.
Activity activity_of(const TraceSlice& slice) {
  static const std::set<std::string, std::less<>> moving = {"messages", "collectives", "travels"};
  static const std::set<std::string, std::less<>> tiers = {"tier", "loader", "checkpoint"};
  if (moving.contains(slice.kind) || slice.name.find("RECV") != std::string::npos) {
    return Activity::communicating;
  }
  return tiers.contains(slice.kind) ? Activity::loading : Activity::computing;
}

/// "3F7" and "0F1" are one kind of work: digits say stage and micro-batch.
std::string work_of(const std::string& name) {
  std::string letters;
  std::ranges::copy_if(name, std::back_inserter(letters),
                       [](char letter) { return letter < '0' || letter > '9'; });
  return letters.empty() ? name : letters;
}

/// Each kind counts where none before it is under way, so the four shares add up to 1.
RankTimes times_of(std::int64_t rank, std::map<Activity, std::vector<Interval>>& of,
                   double seconds) {
  const std::vector<Interval> computing = united(of[Activity::computing]);
  const std::vector<Interval> moving = joined(computing, of[Activity::communicating]);
  const std::vector<Interval> all = joined(moving, of[Activity::loading]);
  const double computed = length(computing), moved = length(moving), busy = length(all);
  return {.rank = rank,
          .computing = computed / seconds,
          .communicating = (moved - computed) / seconds,
          .loading = (busy - moved) / seconds,
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

std::vector<TraceSlice> parse_trace(std::string_view json, const std::string& origin) {
  // Both forms of the format: a list alone, or in an object beside what viewers are told.
  const Events root = Events::parse(json, nullptr, /*allow_exceptions=*/false);
  const bool object = root.is_object() && root.contains("traceEvents");
  require(root.is_array() || object, origin,
          ": this is no Chrome trace: a list of events, or an object with \"traceEvents\"");
  const Events& events = object ? root["traceEvents"] : root;
  require(events.is_array(), origin, ": \"traceEvents\" is no list");
  TraceReader reader(origin);
  for (const Events& event : events) {
    reader.add(event);
  }
  return reader.finish();
}

TraceSummary summarise(const std::vector<TraceSlice>& slices) {
  require(!slices.empty(), "a trace without slices has no summary");
  double begin = slices.front().begin, end = slices.front().end, all_work = 0;
  std::map<std::int64_t, std::map<Activity, std::vector<Interval>>> ranks;
  std::map<std::string, double> work;
  for (const TraceSlice& slice : slices) {
    begin = std::min(begin, slice.begin);
    end = std::max(end, slice.end);
    const Activity activity = activity_of(slice);
    ranks[slice.rank][activity].push_back({slice.begin, slice.end});
    if (activity == Activity::computing) {
      work[work_of(slice.name)] += slice.end - slice.begin;
      all_work += slice.end - slice.begin;
    }
  }
  TraceSummary summary;
  summary.seconds = end - begin;
  // A trace of moments has no shares; its one sentence is that it took no time.
  const double seconds = summary.seconds > 0 ? summary.seconds : 1;
  for (auto& [rank, of] : ranks) {
    const RankTimes times = times_of(rank, of, seconds);
    // Means of ranks: a second that one of eight ranks waits is an eighth of a second.
    const auto count = static_cast<double>(ranks.size());
    summary.computing += times.computing / count;
    summary.communicating += times.communicating / count;
    summary.loading += times.loading / count;
    summary.idle += times.idle / count;
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
      summary.longest.empty() ? std::string("Nothing was computed.")
                              : fmt::format("Of what was computed \"{}\" took most, {:.1f} %.",
                                            summary.longest, 100 * summary.longest_share),
      remedy(summary));
}

}  // namespace sprat::planning
