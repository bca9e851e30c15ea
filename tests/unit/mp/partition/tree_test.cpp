// SMP's tree algorithm on trees that are small enough to follow by hand.
#include "mp/partition/tree.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>

#include "comm/base/check.hpp"
#include "sprat/error.hpp"

namespace sprat::mp {
namespace {

Module leaf_module(std::string name, double time) {
  return {.own = {.name = std::move(name), .time = time, .parameter_bytes = 1}, .children = {}};
}

Module without_parameters(std::string name, double time) {
  return {.own = {.name = std::move(name), .time = time}, .children = {}};
}

Module group_of(std::string name, std::vector<Module> children) {
  return {.own = {.name = std::move(name)}, .children = std::move(children)};
}

Module sharing(Module module, const std::string& parameter) {
  module.own.shared.push_back({.name = parameter, .bytes = 1});
  return module;
}

/// By time alone, so that costs are the numbers of the tree over their sum.
std::map<std::string, int> cut_by_time(const Module& root, int partitions,
                                       SeatRule seats = SeatRule::capped) {
  const std::vector<int> where =
      cut_tree(root, {.partitions = partitions, .memory_weight = 0, .seats = seats});
  const auto pieces = pieces_of(root);
  EXPECT_EQ(where.size(), pieces.size());
  std::map<std::string, int> result;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    result[pieces[i]->name] = where[i];
  }
  return result;
}

using Where = std::map<std::string, int>;

// e and h share w, so they are one node of 2 + 2, where e stands. 4, 3, 3 in two segments: the
// largest sum of {4 3}{3} is 7, of {4}{3 3} it is 6.
TEST(TreeCut, modules_that_share_a_parameter_are_together) {
  const Module root = group_of("root", {sharing(leaf_module("e", 2), "w"), leaf_module("a", 3),
                                        leaf_module("b", 3), sharing(leaf_module("h", 2), "w")});
  EXPECT_EQ(cut_by_time(root, 2), (Where{{"root", 0}, {"e", 0}, {"a", 1}, {"b", 1}, {"h", 0}}));
}

// x and y share v, y and z share w: one node of 1 + 1 + 4 where x stands, inside of g. So g costs
// 6 + 2 = 8 and k, whose z is gone, 5. Two partitions, two children: seats 8 -> g, then 5 of k over
// 8 / 2. Inside of g nothing is left to divide.
TEST(TreeCut, sharing_reaches_over_modules_and_depths) {
  const Module root =
      group_of("root", {group_of("g", {sharing(leaf_module("x", 1), "v"), leaf_module("s", 2)}),
                        sharing(sharing(leaf_module("y", 1), "v"), "w"),
                        group_of("k", {sharing(leaf_module("z", 4), "w"), leaf_module("t", 5)})});
  EXPECT_EQ(
      cut_by_time(root, 2),
      (Where{{"root", 0}, {"g", 0}, {"x", 0}, {"s", 0}, {"y", 0}, {"k", 1}, {"z", 0}, {"t", 1}}));
}

// The root's own 4 lies on partition 0. 4, 2, 2, 4 in two segments: {4 2}{2 4}, 6 each. Without
// its load, 2, 2, 4 would be cut {2 2}{4}, which leaves 8 on partition 0.
TEST(TreeCut, what_the_parent_has_on_its_partition_counts) {
  Module root = group_of("root", {leaf_module("a", 2), leaf_module("b", 2), leaf_module("c", 4)});
  root.own.time = 4;
  root.own.parameter_bytes = 1;
  EXPECT_EQ(cut_by_time(root, 2), (Where{{"root", 0}, {"a", 0}, {"b", 1}, {"c", 1}}));
}

// Plain seats: 8, 8/2 and 8/3 > 2 go to e, and so does the fourth, 8/4 = 2, at equality to the
// first. Partitions 1 to 3 stay empty. Capped: e takes one. Then 2 -> f, 2 -> g, and of 2/2 = 2/2
// the first, f. So f has 1 and 2, g has 3.
Module tree_with_big_embedding() {
  return group_of("root",
                  {leaf_module("e", 8), group_of("f", {leaf_module("f1", 1), leaf_module("f2", 1)}),
                   group_of("g", {leaf_module("g1", 1), leaf_module("g2", 1)})});
}
TEST(TreeCut, plain_seats_over_feed_a_big_module_without_children) {
  EXPECT_EQ(
      cut_by_time(tree_with_big_embedding(), 4, SeatRule::plain),
      (Where{
          {"root", 0}, {"e", 0}, {"f", 0}, {"f1", 0}, {"f2", 0}, {"g", 0}, {"g1", 0}, {"g2", 0}}));
}
TEST(TreeCut, capped_seats_give_it_one) {
  EXPECT_EQ(
      cut_by_time(tree_with_big_embedding(), 4),
      (Where{
          {"root", 0}, {"e", 0}, {"f", 1}, {"f1", 1}, {"f2", 2}, {"g", 3}, {"g1", 3}, {"g2", 3}}));
}

// Three partitions, two children of 6 and 3: seats 6 -> f, of 6/2 = 3 the first, f, then 3 -> g.
// f's 3 and 3 take one each.
TEST(TreeCut, more_partitions_than_children_go_on_inside_of_them) {
  const Module root =
      group_of("root", {group_of("f", {leaf_module("f1", 3), leaf_module("f2", 3)}),
                        group_of("g", {leaf_module("g1", 1), leaf_module("g2", 2)})});
  for (const SeatRule rule : {SeatRule::plain, SeatRule::capped}) {
    EXPECT_EQ(cut_by_time(root, 3, rule),
              (Where{{"root", 0}, {"f", 0}, {"f1", 0}, {"f2", 1}, {"g", 2}, {"g1", 2}, {"g2", 2}}));
  }
}

// relu's 5 is the root's own, on partition 0. 5, 3, 3 in two segments: {5}{3 3} has 6, {5 3}{3} 8.
TEST(TreeCut, modules_without_parameters_run_where_their_parent_is) {
  const Module root =
      group_of("root", {leaf_module("a", 3), group_of("wrapper", {without_parameters("relu", 5)}),
                        leaf_module("b", 3)});
  EXPECT_EQ(cut_by_time(root, 2),
            (Where{{"root", 0}, {"a", 1}, {"wrapper", 0}, {"relu", 0}, {"b", 1}}));
}

// 1, 1, 1, 9 in three segments: {1}{1 1}{9}, whose seats are 9, 9/2 and 9/3 > 2: all for d, and a,
// b, c go to partition 0. They count when d is divided: 3 carried, then 3, 3, 3 in three segments:
// the last cut with largest sum 6 and least squares is {3}{3}{3 3}, a seat each.
TEST(TreeCut, what_was_placed_before_counts_deeper_down) {
  const Module root = group_of(
      "root", {leaf_module("a", 1), leaf_module("b", 1), leaf_module("c", 1),
               group_of("d", {leaf_module("d1", 3), leaf_module("d2", 3), leaf_module("d3", 3)})});
  EXPECT_EQ(
      cut_by_time(root, 3),
      (Where{
          {"root", 0}, {"a", 0}, {"b", 0}, {"c", 0}, {"d", 0}, {"d1", 1}, {"d2", 2}, {"d3", 2}}));
}

// By time 6, 1, 1: {6}{1 1}. By memory 1, 1, 6: {1 1}{6}.
TEST(TreeCut, memory_weight_moves_the_cut_from_time_to_memory) {
  Module root = group_of("root", {leaf_module("a", 6), leaf_module("b", 1), leaf_module("c", 1)});
  root.children[2].own.activation_bytes = 5;
  EXPECT_EQ(cut_tree(root, {.partitions = 2, .memory_weight = 0}), (std::vector{0, 0, 1, 1}));
  EXPECT_EQ(cut_tree(root, {.partitions = 2, .memory_weight = 1}), (std::vector{0, 0, 0, 1}));
}

Module random_tree(std::mt19937& random, int depth, int& modules) {
  const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
  Module module{.own = {.name = text("m", modules++),
                        .time = below(9) + 0.0,
                        .parameter_bytes = below(3) + 0.0,
                        .activation_bytes = below(5) + 0.0},
                .children = {}};
  if (below(12) == 0) {
    module.own.shared = {{.name = text("w", below(2)), .bytes = 3}};
  }
  for (int child = depth > 0 ? below(5) : 0; child > 0; --child) {
    module.children.push_back(random_tree(random, depth - 1, modules));
  }
  return module;
}

bool holds_parameters(const Module& module) {
  return module.own.parameter_bytes > 0 || !module.own.shared.empty() ||
         std::ranges::any_of(module.children, holds_parameters);
}

/// Children without parameters are with `module`; `next` counts pieces in execution order.
void expect_with_parent(const Module& module, const std::vector<int>& where, std::size_t& next) {
  const std::size_t mine = next++;
  for (const Module& child : module.children) {
    if (!holds_parameters(child)) {
      EXPECT_EQ(where[next], where[mine]) << child.own.name;
    }
    expect_with_parent(child, where, next);
  }
}

/// Cuts of random trees into 1 to 8 partitions; `check` is told the tree and the cut.
template <class Check>
void for_random_trees(const Check& check) {
  std::mt19937 random(1);
  int cuts = 0;
  for (int trees = 0; trees < 200; ++trees) {
    int modules = 0;
    const Module root = random_tree(random, 4, modules);
    for (int partitions = 1; partitions <= 8; ++partitions) {
      try {
        const auto where = cut_tree(root, {.partitions = partitions, .memory_weight = 0.5});
        SCOPED_TRACE(testing::Message() << "tree " << trees << ", " << partitions << " partitions");
        check(root, where, partitions);
        ++cuts;
      } catch (const Error&) {
        break;  // fewer modules than partitions
      }
    }
  }
  EXPECT_GT(cuts, 500);
}

TEST(TreeCut, no_partition_of_capped_seats_is_empty) {
  for_random_trees([](const Module&, const std::vector<int>& where, int partitions) {
    for (int partition = 0; partition < partitions; ++partition) {
      EXPECT_EQ(std::ranges::count(where, partition) > 0, true) << "partition " << partition;
    }
  });
}

TEST(TreeCut, random_trees_keep_parameters_whole_and_the_rest_with_parents) {
  for_random_trees([](const Module& root, const std::vector<int>& where, int) {
    const auto pieces = pieces_of(root);
    std::map<std::string, int> at;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      for (const SharedParameter& shared : pieces[i]->shared) {
        EXPECT_EQ(at.try_emplace(shared.name, where[i]).first->second, where[i]) << shared.name;
      }
    }
    std::size_t next = 0;
    if (at.empty()) {  // a module that shares is where the other is, and so may its children be
      expect_with_parent(root, where, next);
    }
  });
}

TEST(TreeCut, impossible_requests_say_what_works) {
  const Module root = group_of("root", {leaf_module("a", 1), leaf_module("b", 1)});
  const auto complaint = [&](const Module& of, const TreeRequest& request) -> std::string {
    try {
      cut_tree(of, request);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  };
  EXPECT_EQ(complaint(root, {.partitions = 3}),
            "the model has 2 modules with parameters that can be apart, too few for 3 partitions; "
            "ask for at most 2");
  EXPECT_EQ(complaint(root, {.partitions = 2, .memory_weight = 1.5}),
            "memory_weight is a share from 0 to 1, not 1.5");
  Module torn = group_of("root", {sharing(leaf_module("a", 1), "w"), leaf_module("b", 1)});
  torn.children[1].own.shared = {{.name = "w", .bytes = 2}};
  EXPECT_EQ(complaint(torn, {.partitions = 2}),
            "the shared parameter \"w\" has 1 bytes in one module and 2 in another; it is one "
            "parameter");
}

// 8 seats for 100, 80, 30 and 20 thousand votes: the textbook's example.
TEST(DHondt, gives_seats_as_the_textbook_does) {
  const std::vector<double> votes = {100'000, 80'000, 30'000, 20'000};
  EXPECT_EQ(d_hondt(votes, std::vector(4, 8), 8), (std::vector{4, 3, 1, 0}));
}

// The first may have one: the rest goes on without it, 80, 40, 30, 26.7, 20, 20, 16: five of
// them the second's.
TEST(DHondt, goes_on_without_those_who_have_enough) {
  const std::vector<double> votes = {100'000, 80'000, 30'000, 20'000};
  EXPECT_EQ(d_hondt(votes, std::vector{1, 8, 8, 8}, 8), (std::vector{1, 5, 1, 1}));
}

TEST(Segments, are_even_where_the_largest_leaves_a_choice) {
  EXPECT_EQ(cut_in_segments(std::vector<double>{9, 1, 1, 1, 1}, 3),
            (std::vector<std::size_t>{0, 1, 3}));
  EXPECT_EQ(cut_in_segments(std::vector<double>{8, 3, 3, 7, 20, 5}, 3),
            (std::vector<std::size_t>{0, 4, 5}));
}

}  // namespace
}  // namespace sprat::mp
