// Schedules that somebody has damaged are refused, with the action named.
#include "mp/validate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "mp/actions.hpp"
#include "mp/passes/passes.hpp"
#include "mp/text.hpp"
#include "tests/unit/mp/shapes.hpp"

namespace sprat::mp {
namespace {

/// One of each kind, with everything that passes put in.
std::vector<Schedule> whole_schedules() {
  std::vector<Schedule> result;
  for (const ScheduleKind* kind : all_schedules()) {
    const PipelineShape shape = shapes_of(*kind, 3, 6).back();
    const Schedule computed = recompute(kind->make(shape), [](int, int j) { return j % 2 == 1; });
    result.push_back(
        communicate(unshard(reduce(offload(computed, {.horizon = 1, .keep_last = 1})), 2)));
  }
  return result;
}

bool names(const std::vector<std::string>& sentences, const Action& action) {
  return std::ranges::any_of(sentences, [&](const std::string& sentence) {
    return std::ranges::any_of(parts_of(action), [&](const Action& part) {
      return sentence.find(to_text(part)) != std::string::npos;
    });
  });
}

/// Calls with each action's rank and place.
template <class Function>
void for_each_action(const Schedule& schedule, const Function& function) {
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    for (std::size_t place = 0; place < schedule.actions[rank].size(); ++place) {
      function(rank, place);
    }
  }
}

TEST(PipelineValidator, takes_what_the_passes_make) {
  for (const Schedule& schedule : whole_schedules()) {
    EXPECT_EQ(violations(schedule), std::vector<std::string>{}) << schedule.name;
  }
}

TEST(PipelineValidator, names_an_action_that_is_missing) {
  for (const Schedule& whole : whole_schedules()) {
    for_each_action(whole, [&](std::size_t rank, std::size_t place) {
      const Action dropped = whole.actions[rank][place];
      // Parameters may stay, and a tape that was not dropped needs no second forward.
      if (dropped.op == Op::recompute || dropped.op == Op::reshard) {
        return;
      }
      Schedule damaged = whole;
      damaged.actions[rank].erase(damaged.actions[rank].begin() + std::ptrdiff_t(place));
      EXPECT_TRUE(names(violations(damaged), dropped))
          << whole.name << ", rank " << rank << ": " << to_text(dropped);
    });
  }
}

TEST(PipelineValidator, names_an_action_that_is_there_twice) {
  for (const Schedule& whole : whole_schedules()) {
    for_each_action(whole, [&](std::size_t rank, std::size_t place) {
      Schedule damaged = whole;
      const Action twice = whole.actions[rank][place];
      damaged.actions[rank].insert(damaged.actions[rank].begin() + std::ptrdiff_t(place), twice);
      EXPECT_TRUE(names(violations(damaged), twice))
          << whole.name << ", rank " << rank << ": " << to_text(twice);
    });
  }
}

TEST(PipelineValidator, names_an_action_of_another_stage_or_microbatch) {
  for (const Schedule& whole : whole_schedules()) {
    for_each_action(whole, [&](std::size_t rank, std::size_t place) {
      for (const bool stage : {true, false}) {
        Schedule damaged = whole;
        Action& action = damaged.actions[rank][place];
        (stage ? action.stage : action.microbatch) += 1;
        EXPECT_TRUE(names(violations(damaged), action))
            << whole.name << ", rank " << rank << ": " << to_text(action);
      }
    });
  }
}

TEST(PipelineValidator, names_one_of_two_whose_order_matters) {
  for (const Schedule& whole : whole_schedules()) {
    for_each_action(whole, [&](std::size_t rank, std::size_t place) {
      for (std::size_t other = place + 1; other < whole.actions[rank].size(); ++other) {
        const Action a = whole.actions[rank][place], b = whole.actions[rank][other];
        const bool of_one = a.microbatch == b.microbatch && a.stage == b.stage;
        const bool needed = a.op == Op::forward && gives_input_gradient(b.op);
        const bool halves = a.op == Op::backward_input && b.op == Op::backward_weight;
        const bool messages = (a.op == Op::receive_forward && b.op == Op::forward) ||
                              (a.op == Op::forward && b.op == Op::send_forward) ||
                              (a.op == Op::receive_backward && gives_input_gradient(b.op)) ||
                              (gives_input_gradient(a.op) && b.op == Op::send_backward);
        const bool tapes = (a.op == Op::store && b.op == Op::load) ||
                           (a.op == Op::recompute && gives_input_gradient(b.op));
        if (of_one && (needed || halves || messages || tapes)) {
          Schedule damaged = whole;
          std::swap(damaged.actions[rank][place], damaged.actions[rank][other]);
          const auto found = violations(damaged);
          EXPECT_TRUE(names(found, a) || names(found, b))
              << whole.name << ", rank " << rank << ": " << to_text(a) << ' ' << to_text(b);
        }
      }
    });
  }
}

TEST(PipelineValidator, says_rank_place_and_action) {
  using Sentences = std::vector<std::string>;
  const auto sentences = [](const char* lines) {
    return violations(schedule_of_text(lines, "mine"));
  };
  EXPECT_EQ(sentences("0F0 0B0\n1B0 1F0\n"),
            (Sentences{"rank 1, place 0: 1B0 must come behind 1F0, which is at place 1"}));
  EXPECT_EQ(
      sentences("0F0 0SEND_F0 0RECV_B0 0B0\n1RECV_F0 1F0 1B0\n"),
      (Sentences{"rank 0, place 2: 0RECV_B0 has no other end: 1SEND_B0 on rank 1 is missing"}));
  EXPECT_EQ(sentences("0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1\n"
                      "1RECV_F1 1F1 1RECV_F0 1F0 1B0 1SEND_B0 1B1 1SEND_B1\n"),
            (Sentences{"rank 1, place 0: 1RECV_F1 meets another message: rank 0, place 1: 0SEND_F0 "
                       "comes first on this way"}));
  EXPECT_EQ(sentences("0UNSHARD 0F0 0RESHARD 0B0\n"),
            (Sentences{"rank 0, place 3: 0B0 computes without parameters; 0UNSHARD is missing"}));
  EXPECT_EQ(
      sentences("0F0 0STORE0 0B0\n"),
      (Sentences{"rank 0: 0LOAD0 is missing, but the tape was stored and the backward needs it"}));
  EXPECT_EQ(sentences("0F0 0B0 0F1 0B1 2F0 2B0 2F1 2B1\n1F0 1F1 1B0 1B1\n").size(), 2u)
      << "both ranks wait for ever";
}

TEST(PipelineValidator, finds_the_least_capacity) {
  const auto least = [](const char* lines) {
    return least_message_capacity(schedule_of_text(lines, "mine"));
  };
  EXPECT_EQ(least("0F0 0SEND_F0 0RECV_B0 0B0\n1RECV_F0 1F0 1B0 1SEND_B0\n"), 0);
  // Both send first.
  EXPECT_EQ(least("0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1\n"
                  "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1\n"),
            1);
  EXPECT_EQ(
      least("0F0 0SEND_F0 0F1 0SEND_F1 0F2 0SEND_F2 0RECV_B0 0B0 0RECV_B1 0B1 0RECV_B2 0B2\n"
            "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1RECV_F2 1F2 1B2 1SEND_B2\n"),
      1);
  EXPECT_EQ(least("0F0 0RECV_B0 0SEND_F0 0B0\n1RECV_F0 1F0 1B0 1SEND_B0\n"), std::nullopt);
}

}  // namespace
}  // namespace sprat::mp
