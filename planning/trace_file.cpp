// Events in the order of the file become slices of threads; then slices are held against each
// other, and flows against slices.
#include "planning/trace_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "comm/base/check.hpp"
#include "planning/foreign_text.hpp"

namespace sprat::planning {
namespace {

using Events = nlohmann::json;
/// pid and tid.
using Thread = std::pair<std::int64_t, std::int64_t>;

constexpr double microsecond = 1e-6;
constexpr double time_rounding = 1e-9;  // files have microseconds with some digits

/// Files come from many tools, so what a number stands for is named with the event that lacks it.
double number_of(const Events& event, const char* key, const std::string& where) {
  const auto found = event.find(key);
  require(found != event.end() && found->is_number(), where, " has no number \"", key, "\"");
  return found->get<double>();
}

double number_or_0(const Events& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

std::int64_t id_of(const Events& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

/// All of it: names that begin alike are others' all the same.
std::string word_of(const Events& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_string()
             ? without_controls(found->get_ref<const std::string&>())
             : "";
}

/// A fact that a trace of ours tells in whole numbers; others may have anything there.
std::int64_t count_or_0(const Events& facts, const char* key) {
  const auto found = facts.find(key);
  return found != facts.end() && found->is_number_unsigned() ? found->get<std::int64_t>() : 0;
}

/// No place.
constexpr std::size_t nobody = std::numeric_limits<std::size_t>::max();

struct FlowEnd {
  Thread thread;
  double time = 0;
};

struct Flow {
  std::vector<FlowEnd> starts, ends;
};

/// What is of one thread, and who encloses whom.
struct ThreadSlices {
  std::vector<std::size_t> slices;  ///< Indices; as they begin, outer ones first.
  std::vector<std::size_t> around;  ///< By place in `slices`: that of who encloses it, or nobody.
  double last = -1;                 ///< Of the latest "B" or "E".
  std::vector<TraceSlice> open;
};

class TraceReader {
 public:
  explicit TraceReader(std::string origin) : origin_(std::move(origin)) {}

  void add(const Events& event) {
    const std::string where = text(origin_, ": event ", ++number_);
    require(event.is_object(), where, " is no object");
    const std::string phase = word_of(event, "ph");
    require(!phase.empty(), where, " has no phase \"ph\"");
    const Thread thread{id_of(event, "pid"), id_of(event, "tid")};
    if (phase == "X" || phase == "B") {
      begin(event, phase, thread, where);
    } else if (phase == "E") {
      end(event, thread, where);
    } else if (phase == "s" || phase == "f") {
      // Of a list of lists it would take as much of the stack as there are of them.
      require(!event.contains("id") || event["id"].is_primitive(), where,
              " has an \"id\" that is neither a number nor a word");
      Flow& flow = flows_[event.contains("id") ? event["id"].dump() : ""];
      (phase == "s" ? flow.starts : flow.ends)
          .push_back({.thread = thread, .time = number_of(event, "ts", where) * microsecond});
    }
  }

  TraceFile finish(const Events& facts) {
    for (const auto& [thread, of] : threads_) {
      require(of.open.empty(), origin_, ": a slice of process ", thread.first, " never ends");
    }
    require(!file_.slices.empty(), origin_, ": a trace without slices");
    if (facts.is_object()) {
      file_.clock_error_us = number_or_0(facts, "clock_error_us");
      file_.dropped_events = count_or_0(facts, "dropped_events");
      file_.flows_with_one_end = count_or_0(facts, "flows_with_one_end");
    }
    check_nesting();
    check_flows();
    return std::move(file_);
  }

 private:
  void begin(const Events& event, const std::string& phase, const Thread& thread,
             const std::string& where) {
    TraceSlice slice{.rank = thread.first,
                     .thread = thread.second,
                     .name = word_of(event, "name"),
                     .kind = word_of(event, "cat")};
    slice.begin = number_of(event, "ts", where) * microsecond;
    if (phase == "X") {
      const double lasts = number_of(event, "dur", where) * microsecond;
      require(lasts >= 0, where, " ends before it begins");
      slice.end = slice.begin + lasts;
      file_.slices.push_back(std::move(slice));
    } else {
      advance(thread, slice.begin, where);
      threads_[thread].open.push_back(std::move(slice));
    }
  }

  /// An end has no name: it ends what its thread began last.
  void end(const Events& event, const Thread& thread, const std::string& where) {
    std::vector<TraceSlice>& open = threads_[thread].open;
    require(!open.empty(), where, " ends a slice that did not begin");
    open.back().end = number_of(event, "ts", where) * microsecond;
    advance(thread, open.back().end, where);
    file_.slices.push_back(std::move(open.back()));
    open.pop_back();
  }

  void advance(const Thread& thread, double time, const std::string& where) {
    double& last = threads_[thread].last;
    require(time >= last - time_rounding, where, " is before the one before it in its thread");
    last = time;
  }

  /// Viewers draw a thread's slices in each other or side by side, and nothing else.
  void check_nesting() {
    for (std::size_t i = 0; i < file_.slices.size(); ++i) {
      threads_[{file_.slices[i].rank, file_.slices[i].thread}].slices.push_back(i);
    }
    for (auto& [thread, of] : threads_) {
      std::ranges::stable_sort(of.slices, [this](std::size_t a, std::size_t b) {
        const TraceSlice &one = file_.slices[a], &other = file_.slices[b];
        return one.begin != other.begin ? one.begin < other.begin : one.end > other.end;
      });
      // Those that the next slice may lie in, the innermost last.
      std::vector<std::size_t> around;
      for (std::size_t place = 0; place < of.slices.size(); ++place) {
        const TraceSlice& slice = file_.slices[of.slices[place]];
        while (!around.empty() && end_of(of, around.back()) <= slice.begin + time_rounding) {
          around.pop_back();
        }
        if (!around.empty() && slice.end > end_of(of, around.back()) + time_rounding) {
          const TraceSlice& outer = file_.slices[of.slices[around.back()]];
          throw Error(
              ErrorCode::invalid_argument,
              text(origin_, ": \"", printable(slice.name), "\" of process ", thread.first,
                   ", thread ", thread.second, " overlaps \"", printable(outer.name), "\""));
        }
        of.around.push_back(around.empty() ? nobody : around.back());
        around.push_back(place);
      }
    }
  }

  double end_of(const ThreadSlices& of, std::size_t place) const {
    return file_.slices[of.slices[place]].end;
  }

  /// The innermost slice at a time; null if there is none.
  TraceSlice* slice_at(const FlowEnd& end) {
    const auto found = threads_.find(end.thread);
    if (found == threads_.end()) {
      return nullptr;
    }
    // A slice may begin where another one ends, and its nanosecond is not the other one's last one.
    // Of those that have begun the last one is innermost, and if it has ended, who encloses it.
    const ThreadSlices& of = found->second;
    const auto next =
        std::ranges::upper_bound(of.slices, end.time + time_rounding / 4, {},
                                 [this](std::size_t at) { return file_.slices[at].begin; });
    std::size_t place =
        next == of.slices.begin() ? nobody : std::size_t(next - of.slices.begin()) - 1;
    while (place != nobody && end_of(of, place) < end.time - time_rounding) {
      place = of.around[place];
    }
    return place == nobody ? nullptr : &file_.slices[of.slices[place]];
  }

  /// A flow is an arrow between two slices; one end of it points nowhere.
  void check_flows() {
    for (const auto& [key, flow] : flows_) {
      const std::string id = printable(key);
      require(flow.starts.size() == 1 && flow.ends.size() == 1, origin_, ": flow ", id,
              flow.starts.size() == flow.ends.size() ? " is there more than once"
                                                     : " starts or ends alone");
      const FlowEnd &start = flow.starts[0], &finish = flow.ends[0];
      require(slice_at(start) != nullptr, origin_, ": flow ", id, " starts in no slice");
      TraceSlice* const receives = slice_at(finish);
      require(receives != nullptr, origin_, ": flow ", id, " ends in no slice");
      // Two hosts may each be wrong by the bound, and a message that takes no time, as simulated
      // ones do, is received in the nanosecond before the one that it is sent in.
      require(
          finish.time >= start.time - 2 * file_.clock_error_us * microsecond - 2 * time_rounding,
          origin_, ": flow ", id, " ends before it starts");
      receives->sent = start.time;
      ++file_.flows;
    }
  }

  std::string origin_;
  int number_ = 0;
  TraceFile file_;
  std::map<Thread, ThreadSlices> threads_;
  std::map<std::string, Flow> flows_;
};

}  // namespace

TraceFile parse_trace(std::string_view json, const std::string& origin) {
  // Both forms of the format: a list alone, or in an object beside what viewers are told.
  const Events root = parsed_json(json, origin);
  const bool object = root.is_object() && root.contains("traceEvents");
  require(root.is_array() || object, origin,
          ": this is no Chrome trace: a list of events, or an object with \"traceEvents\"");
  const Events& events = object ? root["traceEvents"] : root;
  require(events.is_array(), origin, ": \"traceEvents\" is no list");
  TraceReader reader(origin);
  for (const Events& event : events) {
    reader.add(event);
  }
  return reader.finish(object && root.contains("otherData") ? root["otherData"] : Events());
}

std::string check_text(const TraceFile& trace) {
  std::set<std::int64_t> ranks;
  std::set<std::string> rows;
  for (const TraceSlice& slice : trace.slices) {
    ranks.insert(slice.rank);
    rows.insert(printable(slice.kind));
  }
  std::string said =
      fmt::format("{} slices of {} ranks in the rows {}; {} flows, each with both ends\n",
                  trace.slices.size(), ranks.size(), fmt::join(rows, ", "), trace.flows);
  if (trace.dropped_events > 0) {
    said += fmt::format("{} events had no room and are missing; flows of them, {}, are left out\n",
                        trace.dropped_events, trace.flows_with_one_end);
  }
  if (trace.clock_error_us > 0) {
    said += fmt::format("clocks of other hosts are at most {:.1f} us from rank 0's\n",
                        trace.clock_error_us);
  }
  return said;
}

}  // namespace sprat::planning
