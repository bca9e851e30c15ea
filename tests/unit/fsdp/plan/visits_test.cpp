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
    EXPECT_TRUE(full_[unit]) << "u" << unit << " is visited";
    return actions;
  }
  void release(int unit) {
    if (order_.release(unit)) {
      EXPECT_TRUE(full_[unit]);
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
          body(Visits{unit_names(3), forward, backward, ahead});
        }
      }
    }
  }
}

TEST(GatherSchedule, visited_units_are_full_within_the_budget_and_nothing_stays_behind) {
  for_every_short_order([](const Visits& visits) {
    Replay replay(visits);
    for (int step = 0; step < 2; ++step) {
      EXPECT_TRUE(replay.order().between_passes());
      EXPECT_LE(replay.full_count(), visits.ahead);
      replay.pass(visits.forward);
      replay.pass(visits.backward);
      EXPECT_TRUE(replay.order().between_passes());
      EXPECT_EQ(replay.full_count(), 0);
      replay.restart();
    }
  });
}

TEST(GatherSchedule, evaluation_and_micro_steps_keep_the_budget) {
  for_every_short_order([](const Visits& visits) {
    Replay replay(visits);
    replay.pass(visits.forward);
    replay.pass(visits.forward);
    EXPECT_TRUE(replay.order().between_passes());
    replay.pass(visits.forward);
    replay.pass(visits.backward);
    replay.pass(visits.forward);
    replay.pass(visits.backward);
    EXPECT_EQ(replay.full_count(), 0);
  });
}

TEST(GatherSchedule, each_visit_gathers_the_units_ahead_in_turn) {
  struct Visit {
    int unit;
    std::vector<int> gather;
  };
  const std::vector<Visit> expected = {{0, {1}}, {1, {2}}, {2, {3}}, {3, {}},  // 3 stays full
                                       {3, {2}}, {2, {1}}, {1, {0}}, {0, {}}};
  Replay replay({unit_names(4), {}, {}, 1});
  for (const Visit& visit : expected) {
    EXPECT_EQ(replay.acquire(visit.unit).gather, visit.gather) << "u" << visit.unit;
    replay.release(visit.unit);
  }
}

TEST(GatherSchedule, a_step_gathers_each_unit_twice_but_the_last_once) {
  for (const int units : {1, 2, 3, 7}) {
    for (const int ahead : {0, 1, 2, 3, 4}) {
      const Visits visits{unit_names(units), {}, {}, ahead};
      Replay replay(visits);
      const int before = replay.gathers() - std::min(units, ahead);
      for (int unit = 0; unit < units; ++unit) {
        replay.pass({unit});
      }
      for (int unit = units - 1; unit >= 0; --unit) {
        replay.pass({unit});
      }
      // With prefetching further than one visit, units near the turn stay full as well.
      const int kept = std::max(1, std::min(units, (ahead + 1) / 2));
      EXPECT_EQ(replay.gathers() - before, 2 * units - kept) << units << " units, ahead " << ahead;
    }
  }
}

TEST(GatherSchedule, a_shared_unit_stays_full_where_its_visits_meet) {
  Replay replay({unit_names(3), {0, 1, 2, 0}, {0, 2, 1, 0}, 1});
  replay.pass({0, 1, 2});
  EXPECT_TRUE(replay.order().full(0)) << "gathered ahead for the head";
  replay.pass({0});
  EXPECT_TRUE(replay.order().full(0)) << "its backward is next";
  replay.pass({0, 2, 1});
  EXPECT_TRUE(replay.order().full(0));
  replay.pass({0});
  EXPECT_FALSE(replay.order().full(0));
}

TEST(GatherSchedule, evaluation_drops_what_was_gathered_for_backward) {
  Replay replay({unit_names(4), {0, 1, 2, 3, 0}, {0, 3, 2, 1, 0}, 1});
  replay.pass({0, 1, 2, 3, 0});
  const VisitActions shared = replay.acquire(0);  // first of backward or of another forward
  EXPECT_EQ(shared.gather, std::vector<int>{3});
  replay.release(0);
  const VisitActions forward = replay.acquire(1);  // it was forward
  EXPECT_EQ(forward.drop, std::vector<int>{3});
  EXPECT_EQ(forward.gather, (std::vector<int>{1, 2}));
  EXPECT_EQ(replay.order().expected(), "\"u2\"");
}

TEST(GatherSchedule, a_unit_held_twice_is_freed_by_the_second_release) {
  GatherSchedule order({unit_names(2), {0, 0, 1}, {1, 0}, 0});
  order.acquire(0);
  order.acquire(0);
  EXPECT_FALSE(order.release(0));
  EXPECT_TRUE(order.full(0));
  EXPECT_TRUE(order.release(0));
  EXPECT_FALSE(order.full(0));
}

TEST(GatherSchedule, errors_name_what_was_expected_and_what_came) {
  GatherSchedule order({{"embed", "block", "head"}, {}, {}, 1});
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
              GatherSchedule({{"a"}, {0, 1}, {}, 1});
            }),
            "the order of visits names unit 1; units are 0 to 0");
  EXPECT_EQ(message_of([] {
              GatherSchedule({{"a"}, {}, {}, -1});
            }),
            "prefetch_units is -1; it is 0 or more");
}

TEST(GatherSchedule, knows_what_it_gathers_next) {
  for (const int ahead : {0, 1, 2, 5}) {
    GatherSchedule order({.units = unit_names(4),
                          .forward = {0, 1, 2, 3, 0},
                          .backward = {},
                          .ahead = ahead,
                          .elements = {},
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
