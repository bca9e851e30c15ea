// Which algorithm and protocol NCCL is told to take.
#include "plugins/nccl_net/tuning.hpp"

#include <gtest/gtest.h>

#include <string>

#include "sprat/error.hpp"

namespace sprat::nccl_net::tuning {
namespace {

Costs all_cost(float cost) {
  Costs costs;
  for (auto& row : costs) {
    row.fill(cost);
  }
  return costs;
}

float at(const Costs& costs, Algorithm algorithm, Protocol protocol) {
  return costs[static_cast<std::size_t>(algorithm)][static_cast<std::size_t>(protocol)];
}

TEST(NcclTuning, rules_are_read_with_their_conditions) {
  const auto rules = parse_rules(
      "# ours\nall_reduce 0-64k nodes<=4 tree ll channels=2; all_gather 1m- ranks>7 ring simple\n",
      "here");
  ASSERT_EQ(rules.size(), 2u);
  EXPECT_EQ(rules[0].collective, Collective::all_reduce);
  EXPECT_EQ(rules[0].bytes.most, 64u << 10);
  EXPECT_EQ(rules[0].nodes.most, 4u);
  EXPECT_EQ(rules[0].algorithm, Algorithm::tree);
  EXPECT_EQ(rules[0].protocol, Protocol::ll);
  EXPECT_EQ(rules[0].channels, 2);
  EXPECT_EQ(rules[1].bytes.least, 1u << 20);
  EXPECT_EQ(rules[1].ranks.least, 8u);
}

TEST(NcclTuning, a_rule_that_makes_no_sense_is_refused_with_its_place_and_word) {
  struct Wrong {
    const char* rule;
    const char* said;
  };
  for (const Wrong& one :
       {Wrong{"all_produce ring ll", "all_produce"}, Wrong{"reduce ring", "must name"},
        Wrong{"reduce ring ll nodes~2", "nodes~2"}, Wrong{"reduce ring ll 9-x", "9-x"},
        Wrong{"reduce ring ll channels=0", "channels=0"},
        Wrong{"reduce ring ll channels=65", "channels=65"},
        Wrong{"reduce ring ll nodes<0", "nodes<0"},
        Wrong{"reduce ring ll 0-99999999999999999999", "9999"}}) {
    try {
      parse_rules("\n" + std::string(one.rule), "a.rules");
      ADD_FAILURE() << one.rule;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("a.rules line 2"), std::string::npos)
          << error.what();
      EXPECT_NE(std::string(error.what()).find(one.said), std::string::npos) << error.what();
    }
  }
}

TEST(NcclTuning, the_first_rule_that_holds_and_can_be_had_costs_nothing) {
  const auto rules = parse_rules(
      "all_reduce nodes=9 tree ll\nall_reduce 0-1k nvls simple\nall_reduce 0-1k ring ll128 "
      "channels=3\n"
      "all_reduce tree simple",
      "here");
  Costs costs = all_cost(5);
  costs[static_cast<std::size_t>(Algorithm::nvls)].fill(not_available);
  const Job job{.ranks = 16, .nodes = 2};
  const Choice small = apply_rules(rules, job, {Collective::all_reduce, 1024}, costs);
  EXPECT_EQ(at(small.costs, Algorithm::ring, Protocol::ll128), 0);
  EXPECT_EQ(at(small.costs, Algorithm::tree, Protocol::ll), 5);
  EXPECT_EQ(at(small.costs, Algorithm::nvls, Protocol::simple), not_available);
  EXPECT_EQ(small.channels, 3);
  const Choice large = apply_rules(rules, job, {Collective::all_reduce, 1025}, costs);
  EXPECT_EQ(at(large.costs, Algorithm::tree, Protocol::simple), 0);
  EXPECT_EQ(large.channels, 0);
  const Choice other = apply_rules(rules, job, {Collective::broadcast, 8}, costs);
  EXPECT_EQ(other.costs, costs) << "no rule is about it";
}

TEST(NcclTuning, the_model_has_trees_for_short_and_rings_for_long_calls_of_many_nodes) {
  const Job job{.ranks = 128, .nodes = 16, .wire_mbit_s = 25'000};
  const auto time = [&](std::size_t bytes, Algorithm algorithm, Protocol protocol) {
    return modelled(job, {Collective::all_reduce, bytes}, algorithm, protocol).value();
  };
  EXPECT_LT(time(8, Algorithm::tree, Protocol::ll), time(8, Algorithm::ring, Protocol::ll));
  EXPECT_LT(time(8, Algorithm::tree, Protocol::ll), time(8, Algorithm::tree, Protocol::simple));
  const std::size_t gigabyte = std::size_t{1} << 30;
  EXPECT_LT(time(gigabyte, Algorithm::ring, Protocol::simple),
            time(gigabyte, Algorithm::tree, Protocol::simple));
  EXPECT_LT(time(gigabyte, Algorithm::ring, Protocol::simple),
            time(gigabyte, Algorithm::ring, Protocol::ll));
  // 2 (P-1)/P n g, without its steps.
  const double alone = 2.0 * 127 / 128 * static_cast<double>(gigabyte) * 8 / 25'000;
  EXPECT_NEAR(time(gigabyte, Algorithm::ring, Protocol::simple), alone, 0.05 * alone);
}

TEST(NcclTuning, the_model_says_nothing_of_one_node_and_leaves_what_cannot_be_had) {
  EXPECT_FALSE(modelled({.ranks = 8, .nodes = 1}, {}, Algorithm::ring, Protocol::simple));
  EXPECT_FALSE(modelled({.ranks = 8, .nodes = 2}, {}, Algorithm::nvls, Protocol::simple));
  Costs costs = all_cost(7);
  costs[static_cast<std::size_t>(Algorithm::tree)].fill(not_available);
  const Choice choice = apply_model({.ranks = 8, .nodes = 2}, {Collective::all_reduce, 64}, costs);
  EXPECT_EQ(at(choice.costs, Algorithm::tree, Protocol::ll), not_available);
  EXPECT_EQ(at(choice.costs, Algorithm::nvls, Protocol::ll), 7);
  EXPECT_GT(at(choice.costs, Algorithm::ring, Protocol::ll), 7);
}

}  // namespace
}  // namespace sprat::nccl_net::tuning
