// A timeline as a trace that chrome://tracing and ui.perfetto.dev open.
#include <fmt/core.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "mp/text.hpp"

namespace sprat::mp {
namespace {

using Json = nlohmann::ordered_json;

/// The thread that shows it. Empty: the rank's own, which it holds while it lasts.
std::string thread_beside(Op op) {
  switch (op) {
    case Op::send_forward:
    case Op::send_backward:
      return "messages";
    case Op::unshard:
    case Op::reshard:
    case Op::reduce:
      return "collectives";
    case Op::store:
    case Op::load:
      return "tier";
    case Op::forward:
    case Op::backward:
    case Op::backward_input:
    case Op::backward_weight:
    case Op::recompute:
    case Op::receive_forward:
    case Op::receive_backward:
    case Op::overlap:
      return "";
  }
  return "";
}

/// Metadata: what the viewers call a process or a thread.
Json named(const char* what, std::size_t process, std::size_t thread, const std::string& name) {
  return {
      {"name", what}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

class RankTrace {
 public:
  RankTrace(std::size_t rank, Json& events) : rank_(rank), events_(events) {
    events_.push_back(named("process_name", rank, 0, fmt::format("rank {}", rank)));
    add_thread("computes");
  }

  void add(const Action& action, const TimeSpan& span) {
    constexpr double us = 1e6;
    const std::string beside = thread_beside(action.op);
    const std::size_t thread = beside.empty() ? 0 : free_thread(beside, span.start);
    threads_[thread].free = span.end;
    // Shown where a span is clicked.
    Json args = {{"stage", action.stage}};
    if (action.microbatch != no_microbatch) {
      args["microbatch"] = action.microbatch;
    }
    // "X": a whole span, where "B" and "E" would be two events.
    events_.push_back({{"name", to_text(action)},
                       {"cat", threads_[thread].name},
                       {"ph", "X"},
                       {"ts", span.start * us},
                       {"dur", (span.end - span.start) * us},
                       {"pid", rank_},
                       {"tid", thread},
                       {"args", args}});
  }

 private:
  std::size_t free_thread(const std::string& name, double time) {
    for (std::size_t thread = 1; thread < threads_.size(); ++thread) {
      if (threads_[thread].name == name && threads_[thread].free <= time) {
        return thread;
      }
    }
    return add_thread(name);
  }

  std::size_t add_thread(const std::string& name) {
    threads_.push_back({name});
    events_.push_back(named("thread_name", rank_, threads_.size() - 1, name));
    return threads_.size() - 1;
  }

  /// Spans of one thread must not overlap, so what is under way together has several of one name.
  struct Thread {
    std::string name;
    double free = 0;
  };
  const std::size_t rank_;
  Json& events_;
  std::vector<Thread> threads_;
};

}  // namespace

std::string to_trace(const Schedule& schedule, const Timeline& made) {
  Json events = Json::array();
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    RankTrace trace(rank, events);
    for (std::size_t i = 0; i < schedule.actions[rank].size(); ++i) {
      trace.add(schedule.actions[rank][i], made.spans[rank][i]);
    }
  }
  return Json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump(1) + "\n";
}

}  // namespace sprat::mp
