// The gather order, over every short order of visits.
#include "fsdp/plan/visits.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "sprat/error.hpp"
#include "tests/unit/comm/base/refused.hpp"

namespace sprat::fsdp {
namespace {

std::vector<std::string> unit_names(int units) {
  std::vector<std::string> names;
  for (int unit = 0; unit < units; ++unit) {
    names.push_back("u" + std::to_string(unit));
  }
  return names;
}

/// Forward and backward; empty: of every unit in turn.
Visits order_of(int units, const std::vector<int>& forward, const std::vector<int>& backward,
                int ahead) {
  return {.units = unit_names(units),
          .step = plain_visits(forward, backward, 1),
          .evaluation = forward,
          .ahead = ahead};
}

/// Does what the order says, as an engine would, and holds it against the invariants.
class Replay {
 public:
  explicit Replay(const Visits& visits)
      : visits_(visits), order_(visits), full_(visits.units.size(), false) {
    restart();
  }

  void restart() {
    std::fill(full_.begin(), full_.end(), false);
    gather(order_.restart());
  }
  VisitActions acquire(int unit) {
    const VisitActions actions = order_.acquire(unit);
    for (const int other : actions.drop) {
      EXPECT_TRUE(full_[other]) << "drop of u" << other;
      EXPECT_FALSE(order_.acquired(other)) << "drop of u" << other;
      full_[other] = false;
    }
    gather(actions.gather);
    EXPECT_TRUE(full_[unit] || !order_.reads(unit)) << "u" << unit << " is visited";
    return actions;
  }
  void release(int unit) {
    if (order_.release(unit)) {
      EXPECT_TRUE(full_[unit]) << "u" << unit;
      full_[unit] = false;
    }
  }
  void pass(const std::vector<int>& visits) {
    for (const int unit : visits) {
      acquire(unit);
      EXPECT_LE(full_count(), 1 + visits_.ahead);
      release(unit);
    }
  }
  int full_count() const { return static_cast<int>(std::count(full_.begin(), full_.end(), true)); }
  int gathers() const { return gathers_; }
  const GatherSchedule& order() const { return order_; }

 private:
  void gather(const std::vector<int>& units) {
    for (const int unit : units) {
      EXPECT_FALSE(full_[unit]) << "second gather of u" << unit;
      full_[unit] = true;
      ++gathers_;
    }
  }

  Visits visits_;
  GatherSchedule order_;
  std::vector<bool> full_;
  int gathers_ = 0;
};

/// Every list of `length` units out of `units`.
std::vector<std::vector<int>> all_lists(int units, int length) {
  std::vector<std::vector<int>> lists = {{}};
  for (int position = 0; position < length; ++position) {
    std::vector<std::vector<int>> longer;
    for (const auto& list : lists) {
      for (int unit = 0; unit < units; ++unit) {
        longer.push_back(list);
        longer.back().push_back(unit);
      }
    }
    lists = std::move(longer);
  }
  return lists;
}

template <class Body>
void for_every_short_order(Body body) {
  for (int length = 1; length <= 3; ++length) {
    for (const auto& forward : all_lists(3, length)) {
      for (const auto& backward : all_lists(3, length)) {
        for (const int ahead : {0, 1, 2, 5}) {
          body(forward, backward, order_of(3, forward, backward, ahead));
        }
      }
    }
  }
}

TEST(GatherSchedule, visited_units_are_full_within_the_budget_and_nothing_stays_behind) {
  for_every_short_order([](const auto& forward, const auto& backward, const Visits& visits) {
    Replay replay(visits);
    for (int step = 0; step < 2; ++step) {
      EXPECT_TRUE(replay.order().between_passes());
      EXPECT_LE(replay.full_count(), visits.ahead);
      replay.pass(forward);
      replay.pass(backward);
      EXPECT_TRUE(replay.order().between_passes());
      EXPECT_EQ(replay.full_count(), 0);
      replay.restart();
    }
  });
}

TEST(GatherSchedule, evaluation_and_micro_steps_keep_the_budget) {
  for_every_short_order([](const auto& forward, const auto& backward, Visits visits) {
    visits.step = plain_visits(forward, backward, 2);
    visits.micro_steps = 2;
    Replay replay(visits);
    replay.pass(forward);
    replay.pass(forward);
    EXPECT_TRUE(replay.order().between_passes());
    replay.pass(forward);
    replay.pass(backward);
    replay.pass(forward);
    replay.pass(backward);
    EXPECT_TRUE(replay.order().between_passes());
  });
}

TEST(GatherSchedule, each_visit_gathers_the_unit_ahead) {
  struct Use {
    int unit;
    std::vector<int> gather;
  };
  const std::vector<Use> expected = {{0, {1}}, {1, {2}}, {2, {3}}, {3, {}},  // 2 and 3 stay full
                                     {3, {}},  {2, {1}}, {1, {0}}, {0, {}}};
  Replay replay(order_of(4, {}, {}, 1));
  for (const Use& use : expected) {
    EXPECT_EQ(replay.acquire(use.unit).gather, use.gather) << "u" << use.unit;
    replay.release(use.unit);
  }
}

TEST(GatherSchedule, a_step_gathers_each_unit_twice_but_once_what_stays_full_at_the_turn) {
  for (const int units : {1, 2, 3, 7}) {
    for (const int ahead : {0, 1, 2, 3, 4, 9}) {
      Replay replay(order_of(units, {}, {}, ahead));
      for (int unit = 0; unit < units; ++unit) {
        replay.pass({unit});
      }
      for (int unit = units - 1; unit >= 0; --unit) {
        replay.pass({unit});
      }
      EXPECT_EQ(replay.gathers(), 2 * units - std::min(units, 1 + ahead))
          << units << " units, ahead " << ahead;
    }
  }
}

/// Micro-batches of a stage: so many forwards, then as many backwards.
Visits forwards_and_backwards(int units, int micro_steps, int ahead) {
  Visits order{.units = unit_names(units), .ahead = ahead, .micro_steps = micro_steps};
  for (const VisitPass pass : {VisitPass::forward, VisitPass::backward}) {
    for (int microbatch = 0; microbatch < micro_steps; ++microbatch) {
      for (int at = 0; at < units; ++at) {
        const int unit = pass == VisitPass::forward ? at : units - 1 - at;
        order.step.push_back({unit, pass, microbatch});
      }
    }
  }
  return order;
}

TEST(GatherSchedule, units_that_micro_batches_share_are_gathered_once_where_all_may_be_full) {
  for (const int units : {1, 2, 3}) {
    for (const int ahead : {units - 1, units, 9}) {
      Replay replay(forwards_and_backwards(units, 4, ahead));
      for (const Visit& visit : replay.order().declared().step) {
        replay.pass({visit.unit});
      }
      EXPECT_EQ(replay.gathers(), units) << ahead << " ahead";
    }
  }
}

/// Forwards, backwards of inputs, then gradients of weights, which say so or not.
Visits backwards_in_halves(int units, VisitPass of_weights, int ahead) {
  Visits order{.units = unit_names(units), .ahead = ahead};
  for (int unit = 0; unit < units; ++unit) {
    order.step.push_back({unit, VisitPass::forward, 0});
    order.evaluation.push_back(unit);
  }
  for (const VisitPass pass : {VisitPass::forward, of_weights}) {
    for (int unit = units - 1; unit >= 0; --unit) {
      order.step.push_back({unit, pass, 0});
    }
  }
  return order;
}

TEST(GatherSchedule, gathers_nothing_for_gradients_alone) {
  for (const int units : {2, 3, 5}) {
    for (const int ahead : {0, 1, 2}) {
      const auto gathers = [&](VisitPass of_weights) {
        Replay replay(backwards_in_halves(units, of_weights, ahead));
        for (const Visit& visit : replay.order().declared().step) {
          replay.pass({visit.unit});
        }
        EXPECT_EQ(replay.full_count(), 0);
        return replay.gathers();
      };
      const int stays = std::min(units, 1 + ahead);
      EXPECT_EQ(gathers(VisitPass::gradient), 2 * units - stays) << units << ", " << ahead;
      if (stays < units) {
        EXPECT_GT(gathers(VisitPass::backward), gathers(VisitPass::gradient))
            << units << ", " << ahead;
      }
    }
  }
}

TEST(GatherSchedule, has_values_where_a_visit_may_be_an_evaluations) {
  GatherSchedule order({.units = {"a"},
                        .step = {{0, VisitPass::forward, 0}, {0, VisitPass::gradient, 0}},
                        .evaluation = {0, 0, 0}});
  order.acquire(0);
  order.release(0);
  order.acquire(0);
  EXPECT_TRUE(order.reads(0));
  EXPECT_TRUE(order.full(0));
}

TEST(GatherSchedule, keeps_a_unit_whose_gradient_is_added_to_while_it_is_read) {
  GatherSchedule order(backwards_in_halves(2, VisitPass::gradient, 0));
  for (const int unit : {0, 1, 1, 0}) {
    order.acquire(unit);
    if (unit == 1) {
      order.release(unit);
    }
  }
  order.acquire(1);
  EXPECT_FALSE(order.reads(1));
  EXPECT_FALSE(order.release(1));
  EXPECT_TRUE(order.full(0)) << "held since the forward";
}

TEST(GatherSchedule, evaluations_are_told_from_a_step_that_begins_like_them) {
  Visits order = forwards_and_backwards(2, 3, 1);
  order.evaluation = {0, 1};
  Replay replay(order);
  for (int evaluation = 0; evaluation < 5; ++evaluation) {
    EXPECT_TRUE(replay.order().between_passes());
    replay.pass({0});
    EXPECT_EQ(replay.order().expected(), "\"u1\"");
    replay.pass({1});
  }
  for (const Visit& visit : replay.order().declared().step) {
    replay.pass({visit.unit});
  }
  EXPECT_TRUE(replay.order().between_passes());
  EXPECT_EQ(replay.order().expected(), "\"u0\"");
}

TEST(GatherSchedule, evaluation_may_have_an_order_of_its_own) {
  Visits order = order_of(3, {0, 1, 2}, {2, 1, 0}, 1);
  order.evaluation = {2, 0};
  Replay replay(order);
  EXPECT_EQ(replay.order().expected(), "\"u0\" or \"u2\"");
  EXPECT_EQ(replay.acquire(2).gather, std::vector<int>{2}) << "0 is there, and comes next";
  replay.release(2);
  replay.pass({0, 2, 0});
  EXPECT_EQ(replay.order().expected(), "\"u0\" or \"u2\"");
  replay.pass({0, 1, 2, 2, 1, 0});
  EXPECT_EQ(replay.full_count(), 0);
}

TEST(GatherSchedule, a_shared_unit_stays_full_where_its_visits_meet) {
  Replay replay(order_of(3, {0, 1, 2, 0}, {0, 2, 1, 0}, 1));
  replay.pass({0, 1, 2});
  EXPECT_TRUE(replay.order().full(0)) << "gathered ahead for the head";
  replay.pass({0});
  EXPECT_TRUE(replay.order().full(0)) << "its backward is next";
  replay.pass({0, 2, 1});
  EXPECT_TRUE(replay.order().full(0));
  replay.pass({0});
  EXPECT_FALSE(replay.order().full(0));
}

TEST(GatherSchedule, evaluation_drops_what_stayed_for_backward) {
  Replay replay(order_of(4, {0, 1, 2, 3, 0}, {0, 3, 2, 1, 0}, 1));
  replay.pass({0, 1, 2, 3, 0, 0});  // the last is the first of backward or of another forward
  EXPECT_TRUE(replay.order().full(3));
  const VisitActions forward = replay.acquire(1);  // it was forward
  EXPECT_EQ(forward.drop, std::vector<int>{3});
  EXPECT_EQ(forward.gather, (std::vector<int>{1, 2}));
  EXPECT_EQ(replay.order().expected(), "\"u2\"");
}

TEST(GatherSchedule, a_unit_held_twice_is_freed_by_the_second_release) {
  GatherSchedule order(order_of(2, {0, 0, 1}, {1, 0}, 0));
  order.acquire(0);
  order.acquire(0);
  EXPECT_FALSE(order.release(0));
  EXPECT_TRUE(order.full(0));
  EXPECT_TRUE(order.release(0));
  EXPECT_FALSE(order.full(0));
}

TEST(GatherSchedule, errors_name_what_was_expected_and_what_came) {
  GatherSchedule order({.units = {"embed", "block", "head"}});
  EXPECT_EQ(message_of([&] { order.acquire(2); }),
            "acquire(2) is out of the declared order: expected \"embed\", got \"head\"");
  order.acquire(0);  // the refused call changed nothing
  EXPECT_EQ(
      message_of([&] { order.acquire(7); }),
      "acquire(7) is out of the declared order: expected \"block\", got no unit of this model");
  EXPECT_EQ(message_of([&] { order.release(1); }),
            "release(1) of unit \"block\", which is not acquired");
  order.release(0);
  EXPECT_FALSE(order.between_passes());
  order.acquire(1);
  order.release(1);
  order.acquire(2);
  EXPECT_FALSE(order.between_passes()) << "still held";
  order.release(2);
  EXPECT_EQ(
      message_of([&] { order.acquire(1); }),
      "acquire(1) is out of the declared order: expected \"head\" or \"embed\", got \"block\"");
  EXPECT_EQ(message_of([] {
              GatherSchedule({.units = {"a"}, .evaluation = {0, 1}});
            }),
            "the order of visits names unit 1; units are 0 to 0");
  EXPECT_EQ(message_of([] {
              GatherSchedule({.units = {"a"}, .step = {{0, VisitPass::forward, 1}}});
            }),
            "the order of visits names micro-batch 1; micro-batches are 0 to 0");
  EXPECT_EQ(message_of([] { GatherSchedule({.units = {"a"}, .micro_steps = 0}); }),
            "micro_steps is 0; it is 1 or more");
  EXPECT_EQ(message_of([] { GatherSchedule({.units = {"a"}, .ahead = -1}); }),
            "prefetch_units is -1; it is 0 or more");
}

TEST(GatherSchedule, knows_what_it_gathers_next) {
  for (const int ahead : {0, 1, 2, 5}) {
    GatherSchedule order(
        {.units = unit_names(4),
         .step = plain_visits(std::vector{0, 1, 2, 3, 0}, std::vector{0, 3, 2, 1, 0}, 2),
         .ahead = ahead,
         .micro_steps = 2});
    order.restart();
    for (const int unit : {0, 1, 2, 3, 0, 0, 3, 2, 1, 0, 0, 1, 2, 3, 0, 0, 3, 2, 1, 0}) {
      const std::vector<int> upcoming = order.upcoming();
      EXPECT_LE(upcoming.size(), 1u);
      for (const int gathered : order.acquire(unit).gather) {
        EXPECT_EQ(upcoming, std::vector{gathered}) << "u" << unit << ", " << ahead << " ahead";
      }
      order.release(unit);
    }
    EXPECT_TRUE(order.upcoming().empty()) << "parameters change at the end of a step";
  }
}

}  // namespace
}  // namespace sprat::fsdp
