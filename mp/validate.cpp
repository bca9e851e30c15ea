#include "mp/validate.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "comm/base/check.hpp"
#include "mp/actions.hpp"
#include "mp/text.hpp"

namespace sprat::mp {
namespace {

/// Beyond these, one mistake would be told a thousand times.
constexpr std::size_t most_violations = 20;

/// Where an action stands; place counts from 0.
struct Standing {
  int rank = 0;
  std::size_t place = 0;
};
/// Operation, stage and micro-batch in one number: there are at most 15 operations and 2^28 stages.
using ActionKey = std::uint64_t;

ActionKey key_of(Op op, int stage, int microbatch) {
  return ActionKey(op) << 60 | ActionKey(stage) << 32 | std::uint32_t(microbatch);
}
ActionKey key_of(const Action& action) {
  return key_of(action.op, action.stage, action.microbatch);
}

/// From rank, to rank, forward or not.
using Channel = std::tuple<int, int, bool>;

class Validator {
 public:
  explicit Validator(const Schedule& schedule) : schedule_(schedule) {}

  std::vector<std::string> run() {
    check_numbers();
    if (found_.empty()) {  // what follows indexes by them
      list_actions();
      check_each_microbatch();
      check_messages();
      check_fifo();
      check_parameters();
      check_reductions();
    }
    return std::move(found_);
  }

 private:
  template <class... Args>
  void add(const Args&... args) {
    if (found_.size() < most_violations) {
      found_.push_back(text(args...));
    }
  }
  static std::string at(const Standing& where, const Action& action) {
    return text("rank ", where.rank, ", place ", where.place, ": ", to_text(action));
  }
  int rank_of(int stage) const { return schedule_.rank_of_stage[std::size_t(stage)]; }
  const Standing* find(Op op, int stage, int microbatch) const {
    const auto found = standing_.find(key_of(op, stage, microbatch));
    return found == standing_.end() ? nullptr : &found->second;
  }
  template <class Function>
  void for_each_part(const Function& function) const {
    for (int rank = 0; rank < schedule_.ranks(); ++rank) {
      const auto& actions = schedule_.actions[std::size_t(rank)];
      for (std::size_t place = 0; place < actions.size(); ++place) {
        for (const Action& part : parts_of(actions[place])) {
          function(Standing{.rank = rank, .place = place}, part);
        }
      }
    }
  }

  void check_numbers() {
    for (int stage = 0; stage < schedule_.stages(); ++stage) {
      if (rank_of(stage) < 0 || rank_of(stage) >= schedule_.ranks()) {
        add("stage ", stage, " is on rank ", rank_of(stage), ", but there are ", schedule_.ranks(),
            " ranks");
      }
    }
    for_each_part([&](const Standing& where, const Action& part) {
      if (part.stage < 0 || part.stage >= schedule_.stages()) {
        add(at(where, part), " is of no stage; there are ", schedule_.stages());
      } else if (rank_of(part.stage) != where.rank) {
        add(at(where, part), " belongs on rank ", rank_of(part.stage), ", which has stage ",
            part.stage);
      } else if (is_of_stage_alone(part.op)
                     ? part.microbatch != no_microbatch
                     : part.microbatch < 0 || part.microbatch >= schedule_.microbatches) {
        add(at(where, part), " is of no micro-batch that it may have; there are ",
            schedule_.microbatches);
      }
    });
  }

  void list_actions() {
    for_each_part([&](const Standing& where, const Action& part) {
      if (part.op == Op::unshard || part.op == Op::reshard) {
        return;  // the only ones that come again
      }
      const auto [before, inserted] = standing_.emplace(key_of(part), where);
      if (!inserted) {
        add(at(where, part), " is there already, at place ", before->second.place);
      }
      has_messages_ = has_messages_ || is_send(part.op) || is_receive(part.op);
      has_backwards_ =
          has_backwards_ || gives_input_gradient(part.op) || gives_weight_gradient(part.op);
    });
  }

  void missing(Op op, int stage, int microbatch, std::string_view why) {
    add("rank ", rank_of(stage), ": ",
        to_text(Action{.op = op, .stage = stage, .microbatch = microbatch}), " is missing", why);
  }

  /// If both are there, `later` must stand behind `earlier`, on one rank.
  void check_order(Op later_op, int stage, int microbatch, Op earlier_op, int earlier_stage) {
    const Standing* later = find(later_op, stage, microbatch);
    const Standing* earlier = find(earlier_op, earlier_stage, microbatch);
    if (later != nullptr && earlier != nullptr && later->place <= earlier->place) {
      add(at(*later, {.op = later_op, .stage = stage, .microbatch = microbatch}),
          " must come behind ",
          to_text(Action{.op = earlier_op, .stage = earlier_stage, .microbatch = microbatch}),
          ", which is at place ", earlier->place);
    }
  }

  // A schedule that was cut short lacks thousands of actions; the first of them say as much.
  void check_each_microbatch() {
    for (int stage = 0; stage < schedule_.stages(); ++stage) {
      for (int j = 0; j < schedule_.microbatches && found_.size() < most_violations; ++j) {
        check_computation(stage, j);
        check_tape(stage, j);
      }
    }
  }

  void check_computation(int stage, int j) {
    const bool whole = find(Op::backward, stage, j), input = find(Op::backward_input, stage, j),
               weight = find(Op::backward_weight, stage, j);
    if (!find(Op::forward, stage, j)) {
      missing(Op::forward, stage, j, "");
    }
    if (whole && (input || weight)) {
      const Op half = input ? Op::backward_input : Op::backward_weight;
      add(at(*find(half, stage, j), {.op = half, .stage = stage, .microbatch = j}),
          " is a half of what the B at place ", find(Op::backward, stage, j)->place, " does");
    } else if (!whole && !input && has_backwards_) {
      missing(weight ? Op::backward_input : Op::backward, stage, j,
              weight ? "" : ", or its halves");
    } else if (!whole && !weight && has_backwards_) {
      missing(Op::backward_weight, stage, j, "");
    }
    for (const Op backward : {Op::backward, Op::backward_input}) {
      check_order(backward, stage, j, Op::forward, stage);
      // Where a V turns, neighbours are on one rank, and nothing but the order makes one wait.
      if (stage + 1 < schedule_.stages() && rank_of(stage + 1) == rank_of(stage)) {
        check_order(backward, stage, j, Op::backward, stage + 1);
        check_order(backward, stage, j, Op::backward_input, stage + 1);
      }
    }
    check_order(Op::backward_weight, stage, j, Op::backward_input, stage);
    if (stage > 0 && rank_of(stage - 1) == rank_of(stage)) {
      check_order(Op::forward, stage, j, Op::forward, stage - 1);
    }
  }

  /// What becomes of the tape between forward and backward.
  void check_tape(int stage, int j) {
    check_order(Op::recompute, stage, j, Op::forward, stage);
    check_order(Op::store, stage, j, Op::forward, stage);
    check_order(Op::load, stage, j, Op::store, stage);
    check_order(Op::recompute, stage, j, Op::load, stage);
    for (const Op backward : {Op::backward, Op::backward_input}) {
      check_order(backward, stage, j, Op::recompute, stage);
      check_order(backward, stage, j, Op::load, stage);
      check_order(backward, stage, j, Op::store, stage);
    }
    if (find(Op::store, stage, j) && !find(Op::load, stage, j)) {
      missing(Op::load, stage, j, ", but the tape was stored and the backward needs it");
    } else if (const Standing* load = find(Op::load, stage, j);
               load != nullptr && !find(Op::store, stage, j)) {
      add(at(*load, {.op = Op::load, .stage = stage, .microbatch = j}),
          " loads a tape that nothing moved away; ",
          to_text(Action{.op = Op::store, .stage = stage, .microbatch = j}), " is missing");
    }
  }

  void check_messages() {
    if (!has_messages_) {
      return;
    }
    for_each_part([&](const Standing& where, const Action& part) {
      if (is_send(part.op) || is_receive(part.op)) {
        const Action other = other_end_of(part);
        if (other.stage < 0 || other.stage >= schedule_.stages()) {
          add(at(where, part), " has no other end; there are ", schedule_.stages(), " stages");
        } else if (rank_of(other.stage) == where.rank) {
          add(at(where, part), " is a message of rank ", where.rank, " to itself");
        } else if (!find(other.op, other.stage, other.microbatch)) {
          add(at(where, part), " has no other end: ", to_text(other), " on rank ",
              rank_of(other.stage), " is missing");
        }
      }
    });
    for (int stage = 0; stage < schedule_.stages(); ++stage) {
      for (int j = 0; j < schedule_.microbatches && found_.size() < most_violations; ++j) {
        check_messages_of(stage, j);
      }
    }
  }

  void check_messages_of(int stage, int j) {
    if (stage + 1 < schedule_.stages() && rank_of(stage + 1) != rank_of(stage)) {
      for (const Op op : {Op::send_forward, Op::receive_backward}) {
        if (!find(op, stage, j) && (op == Op::send_forward || has_backwards_)) {
          missing(op, stage, j, "");
        }
      }
    }
    check_order(Op::send_forward, stage, j, Op::forward, stage);
    check_order(Op::forward, stage, j, Op::receive_forward, stage);
    for (const Op backward : {Op::backward, Op::backward_input}) {
      check_order(Op::send_backward, stage, j, backward, stage);
      check_order(backward, stage, j, Op::receive_backward, stage);
    }
  }

  // Transports that match by order alone (NCCL, one stream of a socket) give a receive whatever was
  // sent first between two ranks. Forwards and backwards have a communicator each.
  void check_fifo() {
    std::map<Channel, std::vector<std::pair<Standing, Action>>> sends, receives;
    for_each_part([&](const Standing& where, const Action& part) {
      const bool forward = part.op == Op::send_forward || part.op == Op::receive_forward;
      const int peer = other_end_of(part).stage;
      if (peer < 0 || peer >= schedule_.stages()) {
        return;  // told already
      }
      if (is_send(part.op)) {
        sends[{where.rank, rank_of(peer), forward}].emplace_back(where, part);
      } else if (is_receive(part.op)) {
        receives[{rank_of(peer), where.rank, forward}].emplace_back(where, part);
      }
    });
    for (const auto& [channel, sent] : sends) {
      const auto& received = receives[channel];
      for (std::size_t i = 0; i < std::min(sent.size(), received.size()); ++i) {
        if (other_end_of(sent[i].second) != received[i].second) {
          add(at(received[i].first, received[i].second),
              " meets another message: ", at(sent[i].first, sent[i].second),
              " comes first on this way");
          break;  // all behind it are shifted as well
        }
      }
    }
  }

  void check_parameters() {
    std::set<int> gathered;
    bool gathers = false;  // otherwise parameters are there for good
    for_each_part([&](const Standing&, const Action& part) {
      gathers = gathers || part.op == Op::unshard || part.op == Op::reshard;
    });
    for_each_part([&](const Standing& where, const Action& part) {
      if (part.op == Op::unshard && !gathered.insert(part.stage).second) {
        add(at(where, part), " gathers parameters that are there");
      } else if (part.op == Op::reshard && gathered.erase(part.stage) == 0) {
        add(at(where, part), " drops parameters that are not there");
      } else if (is_computation(part.op) && gathers && !gathered.contains(part.stage)) {
        add(at(where, part), " computes without parameters; ", part.stage, "UNSHARD is missing");
      }
    });
  }

  // A sum over data ranks that begins before the last micro-batch has added to it would miss that
  // one.
  void check_reductions() {
    std::set<int> reduced;
    for (int stage = 0; stage < schedule_.stages(); ++stage) {
      if (find(Op::reduce, stage, no_microbatch)) {
        reduced.insert(stage);
      }
    }
    for (int stage = 0; stage < schedule_.stages() && !reduced.empty(); ++stage) {
      if (!reduced.contains(stage)) {
        missing(Op::reduce, stage, no_microbatch, ", but other stages have it");
      }
    }
    for_each_part([&](const Standing& where, const Action& part) {
      const Standing* sum = find(Op::reduce, part.stage, no_microbatch);
      if (gives_weight_gradient(part.op) && sum != nullptr && sum->place < where.place) {
        add(at(*sum, {.op = Op::reduce, .stage = part.stage}), " must come behind ", to_text(part),
            ", which is at place ", where.place);
      }
    });
  }

  const Schedule& schedule_;
  std::unordered_map<ActionKey, Standing> standing_;
  bool has_messages_ = false;
  bool has_backwards_ = false;  ///< Without any, it is an evaluation.
  std::vector<std::string> found_;
};

/// All ranks at once, each as far as it comes.
class Playback {
 public:
  Playback(const Schedule& schedule, std::size_t capacity)
      : schedule_(schedule), capacity_(capacity), next_(schedule.actions.size()) {
    for (const auto& actions : schedule.actions) {
      for (const Action& action : actions) {
        has_messages_ = has_messages_ || is_send(action.op) || is_receive(action.op);
      }
    }
    // Who goes first does not matter: no rank's step takes away what another one could do.
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < next_.size(); ++rank) {
        while (!at_end(rank) && step(rank)) {
          moved = true;
        }
      }
    }
  }
  bool at_end(std::size_t rank) const { return next_[rank] == schedule_.actions[rank].size(); }
  bool ends() const {
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      if (!at_end(rank)) {
        return false;
      }
    }
    return true;
  }
  std::size_t place(std::size_t rank) const { return next_[rank]; }

 private:
  const Action& current(std::size_t rank) const { return schedule_.actions[rank][next_[rank]]; }

  bool step(std::size_t rank) {
    const Action action = current(rank);
    if (is_send(action.op)) {
      return send(rank, action);
    }
    if (is_receive(action.op)) {
      // A send of no capacity takes its receiver along, so all that comes here was sent.
      if (sent_.erase(key_of(other_end_of(action))) == 0) {
        return false;
      }
      --on_their_way_[channel_of(other_end_of(action))];
    } else {
      // Without messages in the schedule a rank still waits for what another one computes.
      for (const Action& part : parts_of(action)) {
        if (!has_messages_ && !has_input(part)) {
          return false;
        }
      }
      for (const Action& part : parts_of(action)) {
        done_.insert(key_of(part));
      }
    }
    ++next_[rank];
    return true;
  }

  bool send(std::size_t rank, const Action& action) {
    const Action other = other_end_of(action);
    const std::size_t to = std::size_t(schedule_.rank_of_stage[std::size_t(other.stage)]);
    std::size_t& under_way = on_their_way_[channel_of(action)];
    const bool awaited = under_way == 0 && !at_end(to) && current(to) == other;
    if (awaited) {
      ++next_[to];
    } else if (under_way < capacity_) {
      sent_.insert(key_of(action));
      ++under_way;
    } else {
      return false;
    }
    ++next_[rank];
    return true;
  }

  Channel channel_of(const Action& send) const {
    const auto rank_of = [&](int stage) { return schedule_.rank_of_stage[std::size_t(stage)]; };
    return {rank_of(send.stage), rank_of(other_end_of(send).stage), send.op == Op::send_forward};
  }
  bool has_input(const Action& part) const {
    const auto was = [&](Op op, int stage) {
      return done_.contains(key_of(op, stage, part.microbatch));
    };
    if (part.op == Op::forward) {
      return part.stage == 0 || was(Op::forward, part.stage - 1);
    }
    return !gives_input_gradient(part.op) || part.stage + 1 == schedule_.stages() ||
           was(Op::backward, part.stage + 1) || was(Op::backward_input, part.stage + 1);
  }

  const Schedule& schedule_;
  std::size_t capacity_;
  bool has_messages_ = false;
  std::vector<std::size_t> next_;
  std::unordered_set<ActionKey> done_, sent_;
  std::map<Channel, std::size_t> on_their_way_;
};

std::size_t action_count(const Schedule& schedule) {
  std::size_t count = 0;
  for (const auto& actions : schedule.actions) {
    count += actions.size();
  }
  return count;
}

}  // namespace

std::vector<std::string> violations(const Schedule& schedule) {
  std::vector<std::string> found = Validator(schedule).run();
  if (!found.empty()) {
    return found;
  }
  const Playback playback(schedule, action_count(schedule));
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    if (!playback.at_end(rank)) {
      const std::size_t place = playback.place(rank);
      found.push_back(text("rank ", rank, ", place ", place, ": ",
                           to_text(schedule.actions[rank][place]),
                           " waits for ever, whatever messages may be under way"));
    }
  }
  return found;
}

std::optional<int> least_message_capacity(const Schedule& schedule) {
  const std::size_t most = action_count(schedule);
  if (Playback(schedule, 0).ends()) {
    return 0;  // as schedules should be
  }
  if (!Playback(schedule, most).ends()) {
    return std::nullopt;
  }
  // More capacity never stops a rank, so the least can be found by halving.
  std::size_t low = 1, high = most;
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (Playback(schedule, middle).ends()) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return int(low);
}

std::vector<int> peak_microbatches(const Schedule& schedule) {
  std::vector<int> peaks;
  for (const auto& actions : schedule.actions) {
    int held = 0, peak = 0;
    for (const Action& action : actions) {
      // Beside each other, the forward's tape grows before the backward's is gone.
      for (const Action& part : parts_of(action)) {
        held += part.op == Op::forward ? 1 : 0;
        peak = std::max(peak, held);
        held -= gives_weight_gradient(part.op) ? 1 : 0;
      }
    }
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace sprat::mp
