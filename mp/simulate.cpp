#include "mp/simulate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string>

#include "comm/base/check.hpp"
#include "mp/actions.hpp"
#include "mp/text.hpp"
#include "mp/timeline.hpp"

namespace sprat::mp {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

/// To a stage's micro-batch: its input, or the gradient of its output. Times until known: never.
struct Message {
  double sent = never, arrives = never, received = never;
  bool posted = false;  ///< The receiver has reached its receive.
};

/// What is known of one micro-batch on one stage.
struct Cell {
  double forward = never, backward_input = never;  ///< When they ended.
  Message input, output_gradient;
  double stored = never;  ///< When the tape has left.
  double loaded = 0;      ///< When it is there again; never while it is away.
  bool recomputed = false;
  std::uint64_t resident = 0;  ///< Bytes of the tape that the rank holds.
  std::uint64_t away = 0;      ///< And those in the tier.
};

/// What a computation waits for.
struct Need {
  enum class Kind { computation, message, parameters, load };
  double time = never;  ///< When it is there.
  Kind kind{};
  Action awaited{};     ///< Which brings it.
  double sent = never;  ///< Of messages: when they were under way.
};

struct Needs {
  std::array<Need, 8> all{};  // an overlap has those of a forward and of a backward
  std::size_t count = 0;

  void add(const Need& need) { all[count++] = need; }
  const Need* begin() const { return all.data(); }
  const Need* end() const { return all.data() + count; }
};

/// What a rank holds changes; a negative number lets go.
struct Change {
  double time = 0;
  std::int64_t bytes = 0;
  int microbatches = 0;
};

struct RankState {
  std::size_t next = 0;  ///< The action it is at.
  double clock = 0;      ///< When it came there.
  bool computing = false;
  double since = 0, work = 0;  ///< Seconds of a whole core that were left at `since`.
  double store_free = 0, load_free = 0, collectives_free = 0;
  std::vector<Change> changes;
};

bool goes_forward(Op op) { return op == Op::send_forward || op == Op::receive_forward; }

/// A file that somebody wrote may hold anything, and all that follows indexes by these numbers.
void require_actions_of(const Schedule& schedule) {
  const auto stands_here = [&](int rank, int stage, int microbatch) {
    return stage >= 0 && stage < schedule.stages() &&
           schedule.rank_of_stage[std::size_t(stage)] == rank && microbatch >= 0 &&
           microbatch < schedule.microbatches;
  };
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    for (const Action& action : schedule.actions[std::size_t(rank)]) {
      bool good =
          stands_here(rank, action.stage, is_of_stage_alone(action.op) ? 0 : action.microbatch);
      if (action.op == Op::overlap) {
        good = good && stands_here(rank, action.other_stage, action.other_microbatch);
      }
      if (is_send(action.op) || is_receive(action.op)) {
        good = good && other_end_of(action).stage >= 0 &&
               other_end_of(action).stage < schedule.stages();
      }
      require(good, "rank ", rank, " has ", to_text(action), ", but the schedule has ",
              schedule.microbatches, " micro-batches and ", schedule.stages(),
              " stages, of which each does only those that it holds");
    }
  }
}

void require_numbers(const PipelineCosts& costs) {
  const auto check = [](double value) {
    require(std::isfinite(value) && value >= 0, "a cost of ", value,
            " is no time; costs are seconds from 0 on");
  };
  check(costs.latency);
  check(costs.seconds_per_byte);
  for (const StageCosts& stage : costs.stages) {
    for (const double value :
         {stage.forward, stage.backward_input, stage.backward_weight, stage.recompute, stage.store,
          stage.load, stage.unshard, stage.reduce}) {
      check(value);
    }
  }
}

class Simulator {
 public:
  Simulator(const Schedule& schedule, const PipelineCosts& costs, int message_capacity)
      : schedule_(schedule), costs_(costs), capacity_(message_capacity) {
    const auto ranks = std::size_t(schedule.ranks());
    cells_.resize(std::size_t(schedule.stages()) * std::size_t(schedule.microbatches));
    gathered_.resize(std::size_t(schedule.stages()));
    ranks_.resize(ranks);
    events_.resize(ranks);
    untaken_.resize(2 * ranks * ranks);
    wire_free_.resize(ranks * ranks);
    made_.ranks.resize(ranks);
    for (const auto& actions : schedule.actions) {
      made_.spans.emplace_back(actions.size());
      for (const Action& action : actions) {
        communicates_ = communicates_ || is_send(action.op) || is_receive(action.op);
        if (action.op == Op::unshard) {
          gathered_[std::size_t(action.stage)] = never;
        } else if (action.op == Op::recompute) {
          cell(action.stage, action.microbatch).recomputed = true;
        }
      }
    }
  }

  /// Of all ranks the one to which something happens first takes its step, until none has any.
  Timeline run() {
    for (int rank = 0; rank < schedule_.ranks(); ++rank) {
      look_again(rank);
    }
    for (;;) {
      const auto first = std::ranges::min_element(events_);
      if (first == events_.end() || *first == never) {
        break;
      }
      now_ = std::max(now_, *first);
      const int rank = int(first - events_.begin());
      advance(rank);
      look_again(rank);
    }
    require_all_done();
    for (int rank = 0; rank < schedule_.ranks(); ++rank) {
      sum_up(rank);
    }
    return std::move(made_);
  }

 private:
  Cell& cell(int stage, int microbatch) { return cells_[index(stage, microbatch)]; }
  const Cell& cell(int stage, int microbatch) const { return cells_[index(stage, microbatch)]; }
  std::size_t index(int stage, int microbatch) const {
    return std::size_t(stage) * std::size_t(schedule_.microbatches) + std::size_t(microbatch);
  }
  RankState& state(int rank) { return ranks_[std::size_t(rank)]; }
  const RankState& state(int rank) const { return ranks_[std::size_t(rank)]; }
  const StageCosts& costs_of(int stage) const { return costs_.stages[std::size_t(stage)]; }
  int rank_of(int stage) const { return schedule_.rank_of_stage[std::size_t(stage)]; }
  const Action& action_of(int rank) const {
    return schedule_.actions[std::size_t(rank)][state(rank).next];
  }
  bool done(int rank) const {
    return state(rank).next == schedule_.actions[std::size_t(rank)].size();
  }
  TimeSpan& span_of(int rank) { return made_.spans[std::size_t(rank)][state(rank).next]; }
  RankUse& use_of(int rank) { return made_.ranks[std::size_t(rank)]; }

  /// Called for each rank whose next event may be another one now: looking at all of them after
  /// each step would make many ranks slow.
  void look_again(int rank) { events_[std::size_t(rank)] = next_event(rank); }

  /// When something happens to the rank by what is known now.
  double next_event(int rank) const {
    const RankState& here = state(rank);
    if (here.computing) {
      return here.since + here.work / speed_;
    }
    if (done(rank)) {
      return never;
    }
    const Action& action = action_of(rank);
    if (is_send(action.op)) {
      return may_send(rank, action) ? now_ : never;
    }
    if (is_receive(action.op)) {
      const Message& message = message_to(action);
      return message.posted ? std::max(message.arrives, now_) : now_;
    }
    double time = now_;
    for (const Need& need : needs_of(action)) {
      time = std::max(time, need.time);
    }
    return time;
  }

  void advance(int rank) {
    if (state(rank).computing) {
      end_computation(rank);
      return;
    }
    const Action& action = action_of(rank);
    if (is_computation(action.op)) {
      start_computation(rank, action);
    } else if (is_send(action.op)) {
      send(rank, action);
    } else if (is_receive(action.op)) {
      receive(rank, action);
    } else {
      start_beside_computation(rank, action);
    }
  }

  void go_on(int rank) {
    ++state(rank).next;
    state(rank).clock = now_;
  }

  // What computations wait for.

  Needs needs_of(const Action& action) const {
    Needs needs;
    const int stage = action.stage, microbatch = action.microbatch;
    switch (action.op) {
      case Op::forward:
        add_forward(needs, stage, microbatch);
        break;
      case Op::backward:
      case Op::backward_input:
        add_backward(needs, stage, microbatch);
        break;
      case Op::overlap:
        add_forward(needs, stage, microbatch);
        add_backward(needs, action.other_stage, action.other_microbatch);
        break;
      case Op::recompute:
        add_own_forward(needs, stage, microbatch);
        add_parameters(needs, stage);
        add_tape(needs, stage, microbatch);
        break;
      case Op::backward_weight:
        needs.add(
            {.time = cell(stage, microbatch).backward_input,
             .awaited = {.op = Op::backward_input, .stage = stage, .microbatch = microbatch}});
        break;
      case Op::store:
        add_own_forward(needs, stage, microbatch);
        break;
      case Op::load:
        // Issued at any time after its store; it begins when the tape has left.
        needs.add({.time = cell(stage, microbatch).stored == never ? never : 0,
                   .awaited = {.op = Op::store, .stage = stage, .microbatch = microbatch}});
        break;
      case Op::send_forward:
      case Op::receive_forward:
      case Op::send_backward:
      case Op::receive_backward:
      case Op::unshard:
      case Op::reshard:
      case Op::reduce:
        break;
    }
    return needs;
  }

  void add_forward(Needs& needs, int stage, int microbatch) const {
    if (stage > 0) {
      const Action before{.op = Op::forward, .stage = stage - 1, .microbatch = microbatch};
      const Action receive{.op = Op::receive_forward, .stage = stage, .microbatch = microbatch};
      add_result(needs, cell(stage - 1, microbatch).forward, before, cell(stage, microbatch).input,
                 receive);
    }
    add_parameters(needs, stage);
  }

  void add_backward(Needs& needs, int stage, int microbatch) const {
    add_own_forward(needs, stage, microbatch);
    if (stage + 1 < schedule_.stages()) {
      const Action after{.op = Op::backward_input, .stage = stage + 1, .microbatch = microbatch};
      const Action receive{.op = Op::receive_backward, .stage = stage, .microbatch = microbatch};
      add_result(needs, cell(stage + 1, microbatch).backward_input, after,
                 cell(stage, microbatch).output_gradient, receive);
    }
    add_parameters(needs, stage);
    add_tape(needs, stage, microbatch);
  }

  /// What another stage computed: on the same rank it is there at once, else it comes as a message.
  void add_result(Needs& needs, double computed, const Action& producer, const Message& message,
                  const Action& receive) const {
    if (rank_of(producer.stage) == rank_of(receive.stage)) {
      needs.add({.time = computed, .awaited = producer});
    } else if (communicates_) {
      needs.add({.time = message.received, .awaited = receive});
    } else {
      needs.add({.time = message.arrives,
                 .kind = Need::Kind::message,
                 .awaited = producer,
                 .sent = message.sent});
    }
  }

  void add_own_forward(Needs& needs, int stage, int microbatch) const {
    needs.add({.time = cell(stage, microbatch).forward,
               .awaited = {.op = Op::forward, .stage = stage, .microbatch = microbatch}});
  }

  void add_parameters(Needs& needs, int stage) const {
    needs.add({.time = gathered_[std::size_t(stage)],
               .kind = Need::Kind::parameters,
               .awaited = {.op = Op::unshard, .stage = stage}});
  }

  void add_tape(Needs& needs, int stage, int microbatch) const {
    needs.add({.time = cell(stage, microbatch).loaded,
               .kind = Need::Kind::load,
               .awaited = {.op = Op::load, .stage = stage, .microbatch = microbatch}});
  }

  // Computation.

  double seconds_of(const Action& action) const {
    const StageCosts& costs = costs_of(action.stage);
    switch (action.op) {
      case Op::forward:
        return costs.forward;
      case Op::backward:
        return costs.backward_input + costs.backward_weight;
      case Op::backward_input:
        return costs.backward_input;
      case Op::backward_weight:
        return costs.backward_weight;
      case Op::recompute:
        return costs.recompute;
      case Op::overlap: {
        const StageCosts& other = costs_of(action.other_stage);
        return costs.forward + other.backward_input + other.backward_weight;
      }
      case Op::send_forward:
      case Op::receive_forward:
      case Op::send_backward:
      case Op::receive_backward:
      case Op::unshard:
      case Op::reshard:
      case Op::reduce:
      case Op::store:
      case Op::load:
        break;
    }
    return 0;
  }

  void start_computation(int rank, const Action& action) {
    RankState& here = state(rank);
    RankUse& use = use_of(rank);
    // One wait after the other, as an engine meets them: what comes later hides behind the first.
    double time = here.clock;
    for (const Need& need : needs_of(action)) {
      const double waited = std::max(0.0, need.time - time);
      switch (need.kind) {
        case Need::Kind::computation:
          break;
        case Need::Kind::message:
          use.exposed_communication += std::min(waited, need.time - need.sent);
          break;
        case Need::Kind::parameters:
          use.exposed_communication += waited;
          break;
        case Need::Kind::load:
          use.load_stall += waited;
          break;
      }
      time += waited;
    }
    span_of(rank).start = now_;
    here.computing = true;
    here.since = now_;
    here.work = seconds_of(action);
    hold_tapes(rank, action);
    share_cores();
  }

  void end_computation(int rank) {
    const Action& action = action_of(rank);
    TimeSpan& span = span_of(rank);
    span.end = now_;
    use_of(rank).busy += span.end - span.start;
    state(rank).computing = false;
    share_cores();
    switch (action.op) {
      case Op::forward:
        end_forward(rank, action.stage, action.microbatch);
        break;
      case Op::overlap:
        end_forward(rank, action.stage, action.microbatch);
        end_backward_input(action.other_stage, action.other_microbatch);
        drop_tape(rank, action.other_stage, action.other_microbatch);
        break;
      case Op::backward:
        end_backward_input(action.stage, action.microbatch);
        drop_tape(rank, action.stage, action.microbatch);
        break;
      case Op::backward_input:
        end_backward_input(action.stage, action.microbatch);
        break;
      case Op::backward_weight:
        drop_tape(rank, action.stage, action.microbatch);
        break;
      case Op::recompute:
      case Op::send_forward:
      case Op::receive_forward:
      case Op::send_backward:
      case Op::receive_backward:
      case Op::unshard:
      case Op::reshard:
      case Op::reduce:
      case Op::store:
      case Op::load:
        break;
    }
    go_on(rank);
  }

  void end_forward(int rank, int stage, int microbatch) {
    Cell& here = cell(stage, microbatch);
    here.forward = now_;
    if (here.recomputed) {
      resize_tape(rank, here, costs_of(stage).input_bytes, now_);
    }
    if (!communicates_ && stage + 1 < schedule_.stages()) {
      transfer(stage, stage + 1, cell(stage + 1, microbatch).input);
    }
  }

  void end_backward_input(int stage, int microbatch) {
    cell(stage, microbatch).backward_input = now_;
    if (!communicates_ && stage > 0) {
      transfer(stage, stage - 1, cell(stage - 1, microbatch).output_gradient);
    }
  }

  /// Ranks that start or end change how fast all others are.
  void share_cores() {
    const auto computing = std::ranges::count_if(ranks_, &RankState::computing);
    const double speed =
        costs_.cores > 0 && computing > costs_.cores ? double(costs_.cores) / double(computing) : 1;
    if (speed == speed_) {
      return;
    }
    for (RankState& rank : ranks_) {
      if (rank.computing) {
        rank.work = std::max(0.0, rank.work - (now_ - rank.since) * speed_);
        rank.since = now_;
      }
    }
    speed_ = speed;
    for (int rank = 0; rank < schedule_.ranks(); ++rank) {
      look_again(rank);
    }
  }

  // Messages.

  Message& message_to(const Action& receive) {
    Cell& here = cell(receive.stage, receive.microbatch);
    return goes_forward(receive.op) ? here.input : here.output_gradient;
  }
  const Message& message_to(const Action& receive) const {
    const Cell& here = cell(receive.stage, receive.microbatch);
    return goes_forward(receive.op) ? here.input : here.output_gradient;
  }

  /// Messages from `from` to `to` that no receive has asked for yet.
  std::size_t channel(int from, int to, bool forward) const {
    return (std::size_t(from) * ranks_.size() + std::size_t(to)) * 2 + (forward ? 1 : 0);
  }

  double produced(const Action& send) const {
    const Cell& here = cell(send.stage, send.microbatch);
    return goes_forward(send.op) ? here.forward : here.backward_input;
  }

  bool may_send(int rank, const Action& action) const {
    const std::size_t line =
        channel(rank, rank_of(other_end_of(action).stage), goes_forward(action.op));
    return produced(action) != never &&
           (message_to(other_end_of(action)).posted || untaken_[line] < capacity_);
  }

  void send(int rank, const Action& action) {
    const int to = other_end_of(action).stage;
    Message& message = message_to(other_end_of(action));
    use_of(rank).exposed_communication += now_ - state(rank).clock;
    if (!message.posted) {
      ++untaken_[channel(rank, rank_of(to), goes_forward(action.op))];
    }
    transfer(action.stage, to, message);
    span_of(rank) = {.start = now_, .end = message.arrives};
    go_on(rank);
  }

  /// Starts now, behind what the two ranks' wire carries already.
  void transfer(int from, int to, Message& message) {
    const bool forward = from < to;
    const std::uint64_t bytes = costs_of(forward ? from : to).output_bytes;
    double& wire =
        wire_free_[std::size_t(rank_of(from)) * ranks_.size() + std::size_t(rank_of(to))];
    wire = std::max(wire, now_) + double(bytes) * costs_.seconds_per_byte;
    message.sent = now_;
    message.arrives = wire + costs_.latency;
    look_again(rank_of(to));
  }

  /// Twice: when the rank comes to the receive, and when the message is there.
  void receive(int rank, const Action& action) {
    Message& message = message_to(action);
    TimeSpan& span = span_of(rank);
    if (!message.posted) {
      message.posted = true;
      span.start = now_;
      if (message.sent != never) {
        --untaken_[channel(rank_of(other_end_of(action).stage), rank, goes_forward(action.op))];
      }
      look_again(rank_of(other_end_of(action).stage));
      return;
    }
    span.end = message.received = now_;
    use_of(rank).exposed_communication +=
        std::min(span.end - span.start, std::max(0.0, span.end - message.sent));
    go_on(rank);
  }

  // Gathers, reductions, stores, loads.

  void start_beside_computation(int rank, const Action& action) {
    RankState& here = state(rank);
    const StageCosts& costs = costs_of(action.stage);
    TimeSpan& span = span_of(rank);
    span = {.start = now_, .end = now_};
    if (action.op == Op::unshard) {
      span.end = occupy(here.collectives_free, now_, costs.unshard);
      gathered_[std::size_t(action.stage)] = span.end;
    } else if (action.op == Op::reshard) {
      gathered_[std::size_t(action.stage)] = never;
    } else if (action.op == Op::reduce) {
      span.end = occupy(here.collectives_free, now_, costs.reduce);
    } else if (action.op == Op::store) {
      Cell& tape = cell(action.stage, action.microbatch);
      span.end = tape.stored = occupy(here.store_free, now_, costs.store);
      tape.loaded = never;
      tape.away = tape.resident;
      resize_tape(rank, tape, 0, span.end);
    } else if (action.op == Op::load) {
      Cell& tape = cell(action.stage, action.microbatch);
      span.end = tape.loaded = occupy(here.load_free, std::max(now_, tape.stored), costs.load);
      resize_tape(rank, tape, tape.away, std::max(now_, tape.stored));
    }
    go_on(rank);
  }

  static double occupy(double& free, double from, double seconds) {
    free = std::max(free, from) + seconds;
    return free;
  }

  // Activations.

  void hold_tapes(int rank, const Action& action) {
    Cell& here = cell(action.stage, action.microbatch);
    if (action.op == Op::forward || action.op == Op::overlap) {
      state(rank).changes.push_back({.time = now_, .microbatches = 1});
      resize_tape(rank, here, costs_of(action.stage).activation_bytes, now_);
    } else if (action.op == Op::recompute) {
      resize_tape(rank, here, costs_of(action.stage).activation_bytes, now_);
    }
  }

  void drop_tape(int rank, int stage, int microbatch) {
    state(rank).changes.push_back({.time = now_, .microbatches = -1});
    resize_tape(rank, cell(stage, microbatch), 0, now_);
  }

  void resize_tape(int rank, Cell& tape, std::uint64_t bytes, double time) {
    state(rank).changes.push_back(
        {.time = time, .bytes = std::int64_t(bytes) - std::int64_t(tape.resident)});
    tape.resident = bytes;
  }

  // The end.

  void require_all_done() const {
    std::string waits;
    for (int rank = 0; rank < schedule_.ranks(); ++rank) {
      if (!done(rank)) {
        waits += (waits.empty() ? "" : "; ") + wait_of(rank);
      }
    }
    require(waits.empty(), "no rank can go on: ", waits);
  }

  std::string wait_of(int rank) const {
    const Action& action = action_of(rank);
    std::string awaited;
    if (is_send(action.op) && produced(action) == never) {
      awaited = goes_forward(action.op) ? "its own forward" : "its own backward";
    } else if (is_send(action.op)) {
      awaited = text("rank ", rank_of(other_end_of(action).stage), " to reach ",
                     to_text(other_end_of(action)));
    } else if (is_receive(action.op)) {
      awaited =
          text(to_text(other_end_of(action)), " of rank ", rank_of(other_end_of(action).stage));
    } else {
      for (const Need& need : needs_of(action)) {
        if (need.time == never) {
          awaited = text(to_text(need.awaited), " of rank ", rank_of(need.awaited.stage));
          break;
        }
      }
    }
    return text("rank ", rank, " at its action ", state(rank).next, ", ", to_text(action),
                ", waits for ", awaited);
  }

  void sum_up(int rank) {
    RankUse& use = use_of(rank);
    // Made in the order of starts; stores and loads come later than what follows them.
    std::vector<Change>& changes = state(rank).changes;
    std::ranges::stable_sort(changes, {}, &Change::time);
    std::int64_t bytes = 0;
    int microbatches = 0;
    for (const Change& change : changes) {
      bytes += change.bytes;
      microbatches += change.microbatches;
      use.peak_activation_bytes = std::max(use.peak_activation_bytes, std::uint64_t(bytes));
      use.peak_microbatches = std::max(use.peak_microbatches, microbatches);
    }
  }

  const Schedule& schedule_;
  const PipelineCosts& costs_;
  const int capacity_;
  bool communicates_ = false;  ///< Its messages are actions, or go without saying.
  double now_ = 0;
  double speed_ = 1;  ///< Of every rank that computes; cores are shared.
  std::vector<Cell> cells_;
  std::vector<double> gathered_;  ///< By stage: since when its parameters are there.
  std::vector<RankState> ranks_;
  std::vector<double> events_;     ///< By rank: when its next step is.
  std::vector<int> untaken_;       ///< By channel().
  std::vector<double> wire_free_;  ///< By pair of ranks.
  Timeline made_;
};

}  // namespace

PipelineCosts uniform_costs(const Schedule& schedule, const StageCosts& stage) {
  return {.stages = std::vector<StageCosts>(std::size_t(schedule.stages()), stage)};
}

Timeline simulate(const Schedule& schedule, const PipelineCosts& costs, int message_capacity) {
  require(costs.stages.size() == schedule.rank_of_stage.size(), "costs of ", costs.stages.size(),
          " stages were given for ", schedule.stages(), "; each stage has its own");
  require(message_capacity >= 0, "a message capacity of ", message_capacity,
          " is negative; 0 is a send that waits for its receive");
  require_numbers(costs);
  require_actions_of(schedule);
  Timeline made = Simulator(schedule, costs, message_capacity).run();
  add_bubbles(made);
  return made;
}

}  // namespace sprat::mp
