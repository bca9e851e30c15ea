// Plans of attention over cut sequences: all ranks' together, for every number of ranks.
#include "mp/context/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "mp/context/chunks.hpp"
#include "sprat/error.hpp"
#include "tests/unit/mp/context/plan_player.hpp"

namespace sprat::mp::context {
namespace {

using ::testing::IsEmpty;

struct Case {
  Way way;
  Pass pass;
  int ranks;
};
std::vector<Case> plan_cases() {
  std::vector<Case> all;
  for (const Way way : {Way::p2p, Way::all_gather}) {
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      for (int ranks = 1; ranks <= 8; ++ranks) {
        all.push_back({way, pass, ranks});
      }
    }
  }
  return all;
}
std::string described(const Case& one) {
  return std::string(name(one.way)) + (one.pass == Pass::forward ? " forward" : " backward") +
         " of " + std::to_string(one.ranks);
}
std::vector<Plan> plans_of(const Case& one) {
  std::vector<Plan> plans;
  for (int rank = 0; rank < one.ranks; ++rank) {
    plans.push_back(one.pass == Pass::forward ? plan_forward(one.way, one.ranks, rank)
                                              : plan_backward(one.way, one.ranks, rank));
  }
  return plans;
}

TEST(ContextPlan, computes_every_pair_once_where_every_send_waits_for_its_receive) {
  for (const Case& one : plan_cases()) {
    EXPECT_THAT(faults(plans_of(one), one.pass), IsEmpty()) << described(one);
  }
}

/// As if the rank forgot it. Waits keep what they wait for.
Plan without(Plan plan, std::size_t dropped) {
  plan.actions.erase(plan.actions.begin() + std::ptrdiff_t(dropped));
  for (Action& action : plan.actions) {
    action.started -= action.op == Op::finish && action.started > dropped ? 1 : 0;
  }
  return plan;
}

TEST(ContextPlan, has_no_action_that_could_be_left_out) {
  for (const Case& one : plan_cases()) {
    // A rank alone gathers what it does not read; above four only the number of plans grows.
    if (one.ranks < 2 || one.ranks > 4) {
      continue;
    }
    const std::vector<Plan> plans = plans_of(one);
    for (std::size_t rank = 0; rank < plans.size(); ++rank) {
      for (std::size_t at = 0; at < plans[rank].actions.size(); ++at) {
        std::vector<Plan> changed = plans;
        changed[rank] = without(plans[rank], at);
        EXPECT_FALSE(faults(changed, one.pass).empty())
            << described(one) << " rank " << rank << " action " << at;
      }
    }
  }
}

TEST(ContextPlan, gives_each_rank_as_many_pairs) {
  for (const Case& one : plan_cases()) {
    for (const Plan& plan : plans_of(one)) {
      const auto pairs = std::ranges::count(plan.actions, Op::attend, &Action::op);
      EXPECT_EQ(pairs, 2 * one.ranks + 1) << described(one) << " rank " << plan.rank;
    }
  }
}

TEST(ContextPlan, holds_two_foreign_chunks_in_a_forward_from_rank_to_rank) {
  for (int ranks = 2; ranks <= 8; ++ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      const Plan forward = plan_forward(Way::p2p, ranks, rank);
      EXPECT_EQ(forward.key_places, 2 + std::min(2, 2 * ranks - 2 - rank)) << rank << ranks;
      EXPECT_EQ(forward.gradient_places, 0);
      const Plan backward = plan_backward(Way::p2p, ranks, rank);
      EXPECT_EQ(backward.key_places, 2 + 3);
      EXPECT_EQ(backward.gradient_places, 2 + 4);
    }
  }
}

TEST(ContextPlan, holds_all_chunks_if_they_are_gathered) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    const Plan forward = plan_forward(Way::all_gather, ranks, 0);
    const Plan backward = plan_backward(Way::all_gather, ranks, 0);
    EXPECT_EQ(forward.key_places, 2 * ranks);
    EXPECT_EQ(backward.key_places, 2 * ranks);
    EXPECT_EQ(backward.gradient_places, 2 * ranks);
  }
}

Traffic received_by_all(const Case& one) {
  Traffic sum;
  for (const Plan& plan : plans_of(one)) {
    const Traffic traffic = received(plan);
    sum.keys += traffic.keys;
    sum.gradients += traffic.gradients;
  }
  return sum;
}

TEST(ContextPlan, moves_what_its_formula_says) {
  for (const Case& one : plan_cases()) {
    const std::size_t ranks = std::size_t(one.ranks), others = ranks - 1;
    // Three of four: the later half of a sequence is not sent to who has nothing behind it.
    const std::size_t each = one.way == Way::p2p ? 3 * ranks * others / 2 : 2 * ranks * others;
    const Traffic wanted{each, one.pass == Pass::forward ? 0 : each};
    EXPECT_EQ(received_by_all(one), wanted) << described(one);
  }
  for (int rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(received(plan_forward(Way::p2p, 5, rank)).keys, std::size_t(2 * 5 - 2 - rank));
    EXPECT_EQ(received(plan_backward(Way::p2p, 5, rank)).keys, std::size_t(2 * 5 - 2 - rank));
  }
}

/// Whether something is computed between the start of this action and the wait for it.
bool comes_beside_attention(const Plan& plan, std::size_t started) {
  for (std::size_t at = started; at < plan.actions.size(); ++at) {
    const Action& action = plan.actions[at];
    if (action.op == Op::finish && action.started == started) {
      return false;
    }
    if (action.op == Op::attend) {
      return true;
    }
  }
  return false;
}

TEST(ContextPlan, receives_keys_beside_attention_but_for_the_first_of_a_forward) {
  for (const Case& one : plan_cases()) {
    for (const Plan& plan : plans_of(one)) {
      int exposed = 0;
      for (std::size_t at = 0; at < plan.actions.size(); ++at) {
        const Action& action = plan.actions[at];
        if ((action.op == Op::receive || action.op == Op::gather) &&
            action.content == Content::keys) {
          exposed += comes_beside_attention(plan, at) ? 0 : 1;
        }
      }
      const bool may_be =
          one.pass == Pass::forward && (one.way == Way::all_gather || plan.rank > 0);
      EXPECT_LE(exposed, may_be ? 1 : 0) << described(one) << " rank " << plan.rank;
    }
  }
}

TEST(ContextPlan, knows_its_ways_by_name) {
  EXPECT_EQ(way_named("p2p"), Way::p2p);
  EXPECT_EQ(way_named("all_gather"), Way::all_gather);
  EXPECT_TRUE(is_way("p2p"));
  EXPECT_TRUE(is_way("all_gather"));
  EXPECT_FALSE(is_way("ring"));
  try {
    way_named("ring");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "no way \"ring\" of moving keys and values (cp_comm_type); there are: p2p "
                 "all_gather");
  }
}

}  // namespace
}  // namespace sprat::mp::context
