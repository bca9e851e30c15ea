// The step is played in virtual time, and a message is put into both ranks' orders when what it
// carries is computed: behind what the receiver is at. All messages thus have one order for all
// ranks together, and ranks that follow one order never wait for each other in a circle, even if
// each send waits for its receive. Moving receives ahead of computation, or back to their use,
// gives this up (pytorch issue 172668).
#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <vector>

#include "comm/base/check.hpp"
#include "mp/actions.hpp"
#include "mp/passes/passes.hpp"
#include "mp/text.hpp"

namespace sprat::mp {
namespace {

/// In units of a forward; only what comes first matters.
int duration_of(const Action& action) {
  int duration = 0;
  for (const Action& part : parts_of(action)) {
    const int one = is_computation(part.op) ? 1 : 0;
    duration += part.op == Op::backward ? 2 : one;
  }
  return duration;
}

/// What a stage waits for of its neighbour: a micro-batch's input, or its output's gradient.
using Arrival = std::tuple<bool, int, int>;

class Player {
 public:
  explicit Player(const Schedule& schedule)
      : schedule_(schedule), result_(schedule), ranks_(schedule.actions.size()) {
    for (auto& actions : result_.actions) {
      actions.clear();
    }
  }

  Schedule run() {
    while (start_all()) {
      end_next();
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const auto& actions = schedule_.actions[rank];
      const std::size_t place = ranks_[rank].next;
      require(place == actions.size(), "rank ", rank, ", place ", place, ": ",
              place < actions.size() ? to_text(actions[place]) : "", " waits for ever");
    }
    return std::move(result_);
  }

 private:
  struct RankClock {
    std::size_t next = 0;
    int ends = 0;
    bool computes = false;
  };

  /// Lets every free rank begin what it can; false if no rank computes then.
  bool start_all() {
    bool any = false;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      RankClock& clock = ranks_[rank];
      const auto& actions = schedule_.actions[rank];
      while (!clock.computes && clock.next < actions.size() && is_ready(actions[clock.next])) {
        const Action& action = actions[clock.next++];
        result_.actions[rank].push_back(action);
        clock.computes = is_computation(action.op);
        clock.ends = now_ + duration_of(action);
      }
      any = any || clock.computes;
    }
    return any;
  }

  bool is_ready(const Action& action) const {
    return std::ranges::all_of(parts_of(action), [&](const Action& part) {
      const bool forward = part.op == Op::forward;
      if (forward ? part.stage == 0
                  : !gives_input_gradient(part.op) || part.stage + 1 == schedule_.stages()) {
        return true;
      }
      return arrived_.contains({forward, part.stage, part.microbatch});
    });
  }

  void end_next() {
    now_ = std::numeric_limits<int>::max();
    for (const RankClock& clock : ranks_) {
      now_ = clock.computes ? std::min(now_, clock.ends) : now_;
    }
    std::vector<Action> sends;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!ranks_[rank].computes || ranks_[rank].ends > now_) {
        continue;
      }
      ranks_[rank].computes = false;
      for (const Action& part : parts_of(schedule_.actions[rank][ranks_[rank].next - 1])) {
        if (part.op == Op::forward && part.stage + 1 < schedule_.stages()) {
          sends.push_back(
              {.op = Op::send_forward, .stage = part.stage, .microbatch = part.microbatch});
        } else if (gives_input_gradient(part.op) && part.stage > 0) {
          sends.push_back(
              {.op = Op::send_backward, .stage = part.stage, .microbatch = part.microbatch});
        }
      }
    }
    // Of two neighbours that end at once, the lower rank receives first (pytorch pull request
    // 178815): somebody has to, and gradients free memory.
    std::stable_partition(sends.begin(), sends.end(),
                          [](const Action& send) { return send.op == Op::send_backward; });
    for (const Action& send : sends) {
      deliver(send);
    }
  }

  void deliver(const Action& send) {
    const Action receive = other_end_of(send);
    const int from = schedule_.rank_of_stage[std::size_t(send.stage)];
    const int to = schedule_.rank_of_stage[std::size_t(receive.stage)];
    if (from != to) {
      result_.actions[std::size_t(from)].push_back(send);
      result_.actions[std::size_t(to)].push_back(receive);
    }
    arrived_.emplace(send.op == Op::send_forward, receive.stage, receive.microbatch);
  }

  const Schedule& schedule_;
  Schedule result_;
  std::vector<RankClock> ranks_;
  std::set<Arrival> arrived_;
  int now_ = 0;
};

}  // namespace

Schedule communicate(const Schedule& schedule) {
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    for (const Action& action : schedule.actions[rank]) {
      require(!is_send(action.op) && !is_receive(action.op), "rank ", rank, " has ",
              to_text(action), ": the schedule has messages already");
    }
  }
  return Player(schedule).run();
}

}  // namespace sprat::mp
