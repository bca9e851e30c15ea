#include "plugins/nccl_net/trace.hpp"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>

namespace sprat::nccl_net {
namespace {

/// NCCL's longest names: ReduceScatter, COLLNET_CHAIN, ncclBfloat16.
template <std::size_t size>
using Word = std::array<char, size>;

template <std::size_t size>
void put(Word<size>& place, const char* text) {
  const std::string_view given = text == nullptr ? "" : text;
  place.fill('\0');
  std::copy_n(given.data(), std::min(given.size(), size - 1), place.data());
}

double microseconds(Trace::Time::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

const char* category(TracedKind kind) {
  switch (kind) {
    case TracedKind::coll:
      return "collective";
    case TracedKind::p2p:
      return "point_to_point";
    case TracedKind::proxy_op:
      return "network";
  }
  return "";
}

}  // namespace

class Trace::Event {
 public:
  TracedFacts facts;  ///< Without its texts.
  Word<24> function{}, data_type{}, algorithm{}, protocol{};
  std::size_t parent = no_parent;  ///< Its place.
  Time begun;
  /// In ticks of the clock since `begun`; below 0 while it goes on. Release and acquire are not
  /// needed: whoever writes the file has joined NCCL's threads.
  std::atomic<Time::duration::rep> lasted{-1};
  static constexpr std::size_t no_parent = SIZE_MAX;
};

Trace::Trace(std::size_t most_events)
    : started_(std::chrono::steady_clock::now()),
      room_(most_events),
      events_(std::make_unique<Event[]>(most_events)) {}

Trace::~Trace() = default;

Trace::Event* Trace::begin(const TracedFacts& facts, const Event* parent) {
  // Places are given once and never again, so a child may look at its parent at any time.
  const std::size_t place = begun_.fetch_add(1, std::memory_order_relaxed);
  if (place >= room_) {
    return nullptr;
  }
  Event& event = events_[place];
  event.facts = facts;
  event.facts.function = event.facts.data_type = nullptr;  // whose texts NCCL may free
  event.facts.algorithm = event.facts.protocol = nullptr;
  put(event.function, facts.function != nullptr ? facts.function
                      : parent != nullptr       ? parent->function.data()
                                                : nullptr);
  put(event.data_type, facts.data_type);
  put(event.algorithm, facts.algorithm);
  put(event.protocol, facts.protocol);
  event.parent =
      parent == nullptr ? Event::no_parent : static_cast<std::size_t>(parent - events_.get());
  event.begun = std::chrono::steady_clock::now();
  return &event;
}

void Trace::end(Event& event) {
  event.lasted.store((std::chrono::steady_clock::now() - event.begun).count(),
                     std::memory_order_relaxed);
}

bool Trace::has(const void* event) const {
  const auto* const one = static_cast<const Event*>(event);
  const Event* const first = events_.get();
  // Only std::less orders pointers that may be of other objects.
  const std::less<const Event*> before;
  return one != nullptr && !before(one, first) && before(one, first + room_);
}

std::size_t Trace::dropped() const {
  const std::size_t begun = begun_.load(std::memory_order_relaxed);
  return begun - std::min(begun, room_);
}

std::string Trace::as_json(int process) const {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  const Time now = std::chrono::steady_clock::now();
  const std::size_t count = std::min(begun_.load(std::memory_order_relaxed), room_);
  for (std::size_t at = 0; at < count; ++at) {
    const Event& event = events_[at];
    const auto lasted = event.lasted.load(std::memory_order_relaxed);
    const Time end = lasted < 0 ? now : event.begun + Time::duration(lasted);
    const bool of_network = event.facts.kind == TracedKind::proxy_op;
    std::string name = event.function[0] == '\0' ? "?" : event.function.data();
    if (of_network) {
      name += event.facts.sends ? " send" : " receive";
    }
    Json facts{{of_network ? "steps" : "count", event.facts.count}};
    const auto tell = [&facts](const char* key, const auto& word) {
      if (word[0] != '\0') {
        facts[key] = word.data();
      }
    };
    tell("data_type", event.data_type);
    tell("algorithm", event.algorithm);
    tell("protocol", event.protocol);
    if (event.facts.peer >= 0) {
      facts["peer"] = event.facts.peer;
    }
    if (event.parent != Event::no_parent) {
      facts["of"] = event.parent;
    }
    if (lasted < 0) {
      facts["unfinished"] = true;
    }
    // Events with an id of their own, since those of one thread overlap and do not nest.
    Json begin{{"ph", "b"},
               {"cat", category(event.facts.kind)},
               {"name", name},
               {"id", at},
               {"pid", event.facts.rank},
               {"tid", of_network ? event.facts.channel + 1 : 0},
               {"ts", microseconds(event.begun - started_)},
               {"args", std::move(facts)}};
    Json finish = begin;
    finish["ph"] = "e";
    finish["ts"] = microseconds(end - started_);
    finish.erase("args");
    list.push_back(std::move(begin));
    list.push_back(std::move(finish));
  }
  const Json whole{{"traceEvents", std::move(list)},
                   {"displayTimeUnit", "ms"},
                   {"otherData", {{"process", process}, {"dropped", dropped()}}}};
  // Names come from outside; what is no UTF-8 must not lose the file.
  return whole.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace sprat::nccl_net
