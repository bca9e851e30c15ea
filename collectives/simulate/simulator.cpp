// The simulator's engine: events in order of time, and what serves one thing at a time.
#include "collectives/simulate/simulator.hpp"

#include <algorithm>
#include <deque>
#include <queue>
#include <utility>

#include "collectives/plan/planner.hpp"
#include "collectives/simulate/simulated_plan.hpp"
#include "comm/base/check.hpp"

namespace sprat::collectives {

namespace {

constexpr double microsecond = 1e-6;

/// A task of a rank.
struct Name {
  int rank = 0;
  std::uint32_t task = 0;
};

struct Event {
  enum class Kind : std::uint8_t {
    core_done,  ///< `what` has been copied or reduced.
    left,       ///< The rail `where` has sent what it was sending.
    heads,      ///< The first byte of what `what` sends is at the rail `where`.
    came,       ///< The rail `where` has received what it was receiving.
    handed,     ///< What `what` sends inside its host can be copied.
    signalled,  ///< Peers see a signal of what.rank.
  };
  double time = 0;
  std::uint64_t order = 0;  ///< Of events of one time.
  Kind kind = Kind::core_done;
  int where = 0;
  Name what;

  bool operator>(const Event& other) const {
    return time != other.time ? time > other.time : order > other.order;
  }
};

/// One direction of a rail: messages in the order in which they want it.
struct Rail {
  std::deque<Name> queue;  ///< The first is under way.
  double busy = 0;
};

/// Tasks of one rank, linked by Task::next.
struct Queue {
  std::uint32_t first = Task::none, last = Task::none;
};

class Engine {
 public:
  Engine(const std::vector<Problem>& each, const Algorithm& algorithm, const Machine& machine,
         const std::function<void(const Span&)>& observe)
      : grouping_(*each.front().grouping),
        signal_seconds_(machine.signal_us * microsecond),
        wire_seconds_(machine.wire_us * microsecond),
        link_rate_(machine.link_GBps / machine.pull_GBps),
        rails_per_host_(machine.rails),
        observe_(observe) {
    for (const Problem& problem : each) {
      plans_.emplace_back(problem, make_plan(problem, algorithm), machine);
      const auto local = grouping_.members(grouping_.host_of(problem.rank)).size();
      Rank& rank = ranks_.emplace_back();
      rank.rail = rail_of(grouping_, machine, problem.rank);
      rank.awaiting.resize(local);
    }
    out_.resize(static_cast<std::size_t>(grouping_.hosts() * rails_per_host_));
    in_.resize(out_.size());
  }

  Simulation run() {
    for (int rank = 0; rank < grouping_.ranks(); ++rank) {
      for (std::uint32_t gate = 0; gate < plans_[rank].gates.size(); ++gate) {
        pass(rank, gate);
      }
    }
    settle();
    start_cores();
    while (!events_.empty()) {
      now_ = events_.top().time;
      while (!events_.empty() && events_.top().time == now_) {
        const Event event = events_.top();
        events_.pop();
        handle(event);
        settle();
      }
      start_cores();
    }
    require_all_done();
    return result();
  }

 private:
  struct Rank {
    RailShare rail;
    std::vector<Queue> awaiting;  ///< By a peer's local index: ascending by the signals they need.
    std::uint32_t signals = 0;    ///< That peers see.
    std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> work;
    bool computes = false;
    double core_begin = 0, core_busy = 0, pulling = 0, link_busy = 0, link_free = 0;
  };

  Task& task(Name name) { return plans_[name.rank].tasks[name.task]; }
  const TaskCost& cost(Name name) { return plans_[name.rank].cost_of(task(name)); }

  void at(double time, Event::Kind kind, int where, Name what) {
    events_.push({.time = time, .order = ++order_, .kind = kind, .where = where, .what = what});
  }

  void handle(const Event& event) {
    switch (event.kind) {
      case Event::Kind::core_done:
        return core_done(event.what);
      case Event::Kind::left:
        return left(event.where);
      case Event::Kind::heads:
        in_[event.where].queue.push_back(event.what);
        if (in_[event.where].queue.size() == 1) {
          receive_next(event.where);
        }
        return;
      case Event::Kind::came:
        return came(event.where);
      case Event::Kind::handed:
        return arrive(event.what);
      case Event::Kind::signalled:
        return see_signal(event.what.rank);
    }
  }

  // ---- order

  /// Opens the gate, or has it watch what is not done.
  void pass(int rank, std::uint32_t index) {
    SimulatedPlan& plan = plans_[rank];
    Gate& gate = plan.gates[index];
    while (gate.watched < gate.last && plan.tasks[gate.watched].done) {
      ++gate.watched;
    }
    if (gate.watched < gate.last) {
      gate.next = std::exchange(plan.tasks[gate.watched].watchers, index);
      return;
    }
    for (std::uint32_t i = gate.begin; i < gate.end; ++i) {
      reach({rank, i});
    }
  }

  /// What follows happens in settle(), for chains of steps that take no time may be long.
  void finish(Name name) {
    task(name).done = true;
    finished_.push_back(name);
  }

  void settle() {
    for (; !finished_.empty(); finished_.pop_front()) {
      const Name name = finished_.front();
      std::uint32_t gate = std::exchange(task(name).watchers, Task::none);
      while (gate != Task::none) {
        const std::uint32_t next = plans_[name.rank].gates[gate].next;
        pass(name.rank, gate);
        gate = next;
      }
    }
  }

  void reach(Name name) {
    Task& what = task(name);
    what.reached = true;
    switch (what.verb) {
      case Verb::share:
        return cost(name).seconds > 0 ? to_core(name) : finish(name);
      case Verb::signal:
        at(now_ + signal_seconds_, Event::Kind::signalled, 0, name);
        return finish(name);
      case Verb::wait:
      case Verb::copy:
      case Verb::reduce:
        return when_signalled(name);
      case Verb::send:
        return send(name);
      case Verb::recv:
        if (what.arrived) {
          received(name);
        }
        return;
    }
  }

  // ---- signals

  /// Goes on with a task whose peers have all signalled, or has it await one that has not.
  void when_signalled(Name name) {
    Task& what = task(name);
    for (int peer : plans_[name.rank].peers_of(what)) {
      if (ranks_[peer].signals < what.ordinal) {
        return await(name, peer);
      }
    }
    what.verb == Verb::wait ? finish(name) : to_core(name);
  }

  void await(Name name, int peer) {
    std::vector<Task>& tasks = plans_[name.rank].tasks;
    Queue& queue = ranks_[name.rank].awaiting[grouping_.local_index(peer)];
    const std::uint32_t needs = tasks[name.task].ordinal;
    if (queue.first == Task::none || needs < tasks[queue.first].ordinal) {
      tasks[name.task].next = queue.first;
      if (queue.first == Task::none) {
        queue.last = name.task;
      }
      queue.first = name.task;
      return;
    }
    std::uint32_t before = tasks[queue.last].ordinal <= needs ? queue.last : queue.first;
    while (before != queue.last && tasks[tasks[before].next].ordinal <= needs) {
      before = tasks[before].next;
    }
    tasks[name.task].next = std::exchange(tasks[before].next, name.task);
    if (before == queue.last) {
      queue.last = name.task;
    }
  }

  void see_signal(int rank) {
    const std::uint32_t signals = ++ranks_[rank].signals;
    for (int peer : grouping_.members(grouping_.host_of(rank))) {
      Queue& queue = ranks_[peer].awaiting[grouping_.local_index(rank)];
      const std::vector<Task>& tasks = plans_[peer].tasks;
      while (queue.first != Task::none && tasks[queue.first].ordinal <= signals) {
        when_signalled({peer, take(peer, queue)});
      }
    }
  }

  std::uint32_t take(int rank, Queue& queue) {
    const std::uint32_t first = queue.first;
    queue.first = std::exchange(plans_[rank].tasks[first].next, Task::none);
    return first;
  }

  // ---- cores and links

  void to_core(Name name) {
    ranks_[name.rank].work.push(name.task);
    idle_.push_back(name.rank);
  }

  /// Once all that happens at this moment has happened, so that it is the first step of the plan
  /// that goes first, not the one whose peer was heard first.
  void start_cores() {
    for (int rank : idle_) {
      if (!ranks_[rank].computes && !ranks_[rank].work.empty()) {
        compute_next(rank);
      }
    }
    idle_.clear();
  }

  void compute_next(int rank) {
    Rank& mine = ranks_[rank];
    const Name name{rank, mine.work.top()};
    mine.work.pop();
    mine.computes = true;
    const Task& what = task(name);
    const TaskCost& takes = cost(name);
    double end = now_ + takes.seconds, pulling = 0;
    if (takes.link_seconds > 0) {
      for (int peer : plans_[rank].peers_of(what)) {
        Rank& theirs = ranks_[peer];
        theirs.link_free = std::max(theirs.link_free, now_) + takes.link_seconds;
        theirs.link_busy += takes.link_seconds;
        pulling += takes.link_seconds * link_rate_;
        end = std::max(end, theirs.link_free);
      }
    }
    mine.pulling += pulling;
    mine.core_busy += takes.seconds - pulling;
    mine.core_begin = now_;
    at(end, Event::Kind::core_done, 0, name);
  }

  void core_done(Name name) {
    Rank& mine = ranks_[name.rank];
    mine.computes = false;
    show(name, mine.core_begin);
    finish(name);
    idle_.push_back(name.rank);
  }

  // ---- messages

  int rail_index(int rank) const {
    return grouping_.host_of(rank) * rails_per_host_ + ranks_[rank].rail.rail;
  }

  void send(Name name) {
    const int to = task(name).peer;
    if (grouping_.together(name.rank, to)) {
      at(now_ + signal_seconds_, Event::Kind::handed, 0, name);
      return finish(name);
    }
    const int rail = rail_index(name.rank);
    out_[rail].queue.push_back(name);
    if (out_[rail].queue.size() == 1) {
      send_next(rail);
    }
  }

  void send_next(int rail) {
    const Name name = out_[rail].queue.front();
    const Task& what = task(name);
    out_[rail].busy += cost(name).seconds;
    at(now_ + cost(name).seconds, Event::Kind::left, rail, name);
    at(now_ + wire_seconds_, Event::Kind::heads, rail_index(what.peer), name);
  }

  void left(int rail) {
    const Name name = out_[rail].queue.front();
    out_[rail].queue.pop_front();
    show(name, now_ - cost(name).seconds);
    finish(name);
    if (!out_[rail].queue.empty()) {
      send_next(rail);
    }
  }

  Name receiver_of(Name sender) {
    const Task& sent = task(sender);
    return {sent.peer, plans_[sent.peer].receiver_of(sender.rank, sent.ordinal)};
  }

  /// As long as the slower of the two rails takes.
  double receiving_seconds(Name sender) {
    return std::max(cost(sender).seconds, cost(receiver_of(sender)).seconds);
  }

  void receive_next(int rail) {
    const Name sender = in_[rail].queue.front();
    const double seconds = receiving_seconds(sender);
    in_[rail].busy += seconds;
    at(now_ + seconds, Event::Kind::came, rail, sender);
  }

  void came(int rail) {
    const Name sender = in_[rail].queue.front();
    in_[rail].queue.pop_front();
    show(receiver_of(sender), now_ - receiving_seconds(sender));
    arrive(sender);
    if (!in_[rail].queue.empty()) {
      receive_next(rail);
    }
  }

  void arrive(Name sender) {
    const Name receiver = receiver_of(sender);
    task(receiver).arrived = true;
    if (task(receiver).reached) {
      received(receiver);
    }
  }

  void received(Name name) {
    grouping_.together(name.rank, task(name).peer) ? to_core(name) : finish(name);
  }

  // ---- the end

  void show(Name name, double begin) {
    if (!observe_) {
      return;
    }
    const Task& what = task(name);
    observe_({.rank = name.rank,
              .verb = what.verb,
              .peer = std::max(what.peer, -1),
              .begin = begin,
              .end = now_});
  }

  void require_all_done() {
    for (int rank = 0; rank < grouping_.ranks(); ++rank) {
      const std::vector<Task>& tasks = plans_[rank].tasks;
      const auto stuck = std::ranges::find(tasks, false, &Task::done);
      if (stuck == tasks.end()) {
        continue;
      }
      throw Error(ErrorCode::internal,
                  text("step ", stuck - tasks.begin(), " of rank ", rank, ", ", name(stuck->verb),
                       ", never ends: plans wait for each "
                       "other"));
    }
  }

  Simulation result() const {
    Simulation made{.seconds = now_};
    for (const Rank& rank : ranks_) {
      made.core = std::max(made.core, rank.core_busy);
      made.link = std::max({made.link, rank.link_busy, rank.pulling});
    }
    for (std::size_t rail = 0; rail < out_.size(); ++rail) {
      made.rail = std::max({made.rail, out_[rail].busy, in_[rail].busy});
    }
    return made;
  }

  const Grouping& grouping_;
  const double signal_seconds_, wire_seconds_;
  const double link_rate_;  ///< In that of pulls.
  const int rails_per_host_;
  const std::function<void(const Span&)>& observe_;
  std::vector<SimulatedPlan> plans_;  ///< By rank.
  std::vector<Rank> ranks_;
  std::vector<Rail> out_, in_;  ///< By host, then rail.
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  std::deque<Name> finished_;  ///< Whose watchers do not know yet.
  std::vector<int> idle_;      ///< Ranks whose cores may have something to do now.
  double now_ = 0;
};

}  // namespace

const char* Simulation::limit() const {
  if (rail + link + core < seconds / 2) {
    return "latency";
  }
  const double most = std::max({rail, link, core});
  return most == rail ? "rail" : most == link ? "link" : "core";
}

Simulation simulate(const std::vector<Problem>& each, const Algorithm& algorithm,
                    const Machine& machine, const std::function<void(const Span&)>& observe) {
  return Engine(each, algorithm, machine, observe).run();
}

Simulation simulate(const Problem& problem, const Algorithm& algorithm, const Machine& machine) {
  require(!exchanges(problem.collective), "of ", name(problem.collective),
          " each rank knows its own part: simulate the problems of all ranks");
  return simulate(for_each_rank(problem), algorithm, machine);
}

}  // namespace sprat::collectives
