// A schedule with messages that runs at capacity 0 stays free of deadlock if receives are posted
// earlier than it says and sends are waited for later: whoever waits, waits for something that the
// schedule, every send waiting for its receive, has behind it. So each life may only grow beyond
// what the schedule's places say, and a slot is taken again when its life is over.
#include "mp/handovers.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "mp/actions.hpp"

namespace sprat::mp {
namespace {

std::size_t index_of(int stage, int microbatch, int microbatches) {
  return std::size_t(stage) * std::size_t(microbatches) + std::size_t(microbatch);
}

class HandoverPlanner {
 public:
  HandoverPlanner(const Schedule& schedule, int rank, const std::vector<std::size_t>& most_elements,
                  int ahead)
      : schedule_(schedule),
        actions_(schedule.actions[std::size_t(rank)]),
        rank_(rank),
        most_elements_(most_elements),
        ahead_(std::size_t(ahead)) {
    const std::size_t cells = schedule.rank_of_stage.size() * std::size_t(schedule.microbatches);
    plan_.microbatches = schedule.microbatches;
    plan_.by_output.assign(cells, -1);
    plan_.by_gradient.assign(cells, -1);
    for (std::size_t place = 0; place < actions_.size(); ++place) {
      if (is_computation(actions_[place].op)) {
        computations_.push_back(place);
      }
    }
  }

  HandoverPlan run() {
    for (std::size_t place = 0; place < actions_.size(); ++place) {
      for (const Action& part : parts_of(actions_[place])) {
        meet(place, part);
      }
    }
    sort_by_place();
    return std::move(plan_);
  }

 private:
  /// A computation says what it reads and writes, a message when it is on its way.
  void meet(std::size_t place, const Action& action) {
    const int stage = action.stage, before = stage - 1;
    const bool first = stage == 0, last = stage + 1 == schedule_.stages();
    if (action.op == Op::forward) {
      if (!last) {
        handover(true, stage, action.microbatch, place).begin = place;
      }
      if (!first) {
        use(handover(true, before, action.microbatch, place), place);
      }
    } else if (gives_input_gradient(action.op)) {
      if (!first) {
        handover(false, before, action.microbatch, place).begin = place;
      }
      if (!last) {
        use(handover(false, stage, action.microbatch, place), place);
      }
    } else if (action.op == Op::receive_forward) {
      handover(true, before, action.microbatch, place).begin = earlier(place);
    } else if (action.op == Op::receive_backward) {
      // Its length is that of what this rank sent, so it is not posted before that is computed.
      const int output = plan_.output(stage, action.microbatch);
      handover(false, stage, action.microbatch, place).begin =
          std::max(earlier(place), plan_.handovers[std::size_t(output)].begin + 1);
    } else if (action.op == Op::send_forward) {
      handover(true, stage, action.microbatch, place).end = later(place + 1);
    } else if (action.op == Op::send_backward) {
      handover(false, before, action.microbatch, place).end = later(place + 1);
    }
  }

  /// Made at its first mention, whose place is no more than a first guess of its life.
  Handover& handover(bool forward, int stage, int microbatch, std::size_t place) {
    int& index = (forward ? plan_.by_output
                          : plan_.by_gradient)[index_of(stage, microbatch, plan_.microbatches)];
    if (index < 0) {
      index = int(plan_.handovers.size());
      const int here = schedule_.rank_of_stage[std::size_t(stage)];
      const int next = schedule_.rank_of_stage[std::size_t(stage) + 1];
      plan_.handovers.push_back({.forward = forward,
                                 .stage = stage,
                                 .microbatch = microbatch,
                                 .from = forward ? here : next,
                                 .to = forward ? next : here,
                                 .most_elements = most_elements_[std::size_t(stage)],
                                 .begin = place,
                                 .end = place + 1});
    }
    return plan_.handovers[std::size_t(index)];
  }

  /// The reader's rank has it until the reader is through.
  void use(Handover& handover, std::size_t place) const {
    if (handover.to == rank_) {
      handover.end = place + 1;
    }
  }

  std::size_t earlier(std::size_t place) const {
    const auto at = std::ranges::lower_bound(computations_, place);
    const auto room = std::size_t(at - computations_.begin());
    return ahead_ == 0 || room == 0 ? place : *(at - std::ptrdiff_t(std::min(ahead_, room)));
  }
  /// To the end of the actions if fewer computations are left.
  std::size_t later(std::size_t place) const {
    if (ahead_ == 0) {
      return place;
    }
    const auto at = std::ranges::lower_bound(computations_, place);
    const auto room = std::size_t(computations_.end() - at);
    return room < ahead_ ? actions_.size() : at[std::ptrdiff_t(ahead_) - 1] + 1;
  }

  void sort_by_place() {
    plan_.begin.resize(actions_.size() + 1);
    plan_.end.resize(actions_.size() + 1);
    std::vector<memory::Buffer> buffers;
    for (std::size_t i = 0; i < plan_.handovers.size(); ++i) {
      const Handover& handover = plan_.handovers[i];
      plan_.begin[handover.begin].push_back(int(i));
      plan_.end[handover.end].push_back(int(i));
      buffers.push_back({.name = handover.forward ? "output" : "gradient",
                         .bytes = handover_header_bytes + handover.most_elements * sizeof(float),
                         .lives = {{.from = handover.begin, .to = handover.end}}});
    }
    plan_.slots = memory::plan_slots(buffers);
  }

  const Schedule& schedule_;
  const std::vector<Action>& actions_;
  const int rank_;
  const std::vector<std::size_t>& most_elements_;
  const std::size_t ahead_;
  std::vector<std::size_t> computations_;  ///< Their places.
  HandoverPlan plan_;
};

}  // namespace

int HandoverPlan::output(int stage, int microbatch) const {
  return by_output[index_of(stage, microbatch, microbatches)];
}

int HandoverPlan::output_gradient(int stage, int microbatch) const {
  return by_gradient[index_of(stage, microbatch, microbatches)];
}

int HandoverPlan::input(int stage, int microbatch) const {
  return stage == 0 ? -1 : output(stage - 1, microbatch);
}

int HandoverPlan::input_gradient(int stage, int microbatch) const {
  return stage == 0 ? -1 : output_gradient(stage - 1, microbatch);
}

HandoverPlan plan_handovers(const Schedule& schedule, int rank,
                            const std::vector<std::size_t>& most_elements, int ahead) {
  return HandoverPlanner(schedule, rank, most_elements, ahead).run();
}

}  // namespace sprat::mp
