// Measurements become rules: few, clear, and none where the usual choice is as good.
#include "cli/bench/choice.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace sprat::cli {
namespace {

constexpr std::size_t no_end = std::numeric_limits<std::size_t>::max();

/// Sizes 8, 32, 128 ... of one other algorithm beside the usual one.
std::vector<Measured> findings(const std::vector<double>& ratios) {
  std::vector<Measured> list;
  std::size_t bytes = 8;
  for (double ratio : ratios) {
    list.push_back({bytes, "direct", {{"direct", 1.0}, {"ring", ratio}}});
    bytes *= 4;
  }
  return list;
}

/// "ring 0-64" and so on.
std::vector<std::string> texts(const std::vector<Stretch>& stretches) {
  std::vector<std::string> out;
  for (const Stretch& one : stretches) {
    out.push_back(one.algorithm + " " + std::to_string(one.least_bytes) + "-" +
                  (one.most_bytes == no_end ? "" : std::to_string(one.most_bytes)));
  }
  return out;
}

TEST(Choice, prefers_what_is_clearly_faster_and_nothing_else) {
  using Texts = std::vector<std::string>;
  const std::vector<std::pair<std::vector<double>, Texts>> table = {
      {{1, 1, 1, 1}, {}},
      {{0.97, 0.96, 0.98, 0.96}, {}},           // unclear everywhere
      {{0.5, 0.5, 1.5, 1.5}, {"ring 0-64"}},    // small only
      {{1.5, 1.5, 0.5, 0.5}, {"ring 65-"}},     // large only
      {{1.5, 0.5, 0.5, 1.5}, {"ring 17-256"}},  // in the middle
      {{0.5, 1.02, 0.5, 0.5}, {"ring 0-"}},     // a slight loss does not cut a stretch
      {{0.5, 3.0, 0.5, 0.5}, {"ring 0-16", "ring 65-"}},
      {{1.0, 0.94, 1.0, 1.0}, {}},              // a lone gain that two changes eat up
      {{0.5, 0.97, 0.97, 1.5}, {"ring 0-16"}},  // unclear gains neither keep nor stretch
  };
  for (const auto& [ratios, wanted] : table) {
    EXPECT_EQ(texts(preferred(findings(ratios))), wanted) << testing::PrintToString(ratios);
  }
}

TEST(Choice, says_how_much_a_stretch_gains) {
  const std::vector<Stretch> stretches = preferred(findings({0.8, 0.5, 0.6, 2}));
  ASSERT_EQ(stretches.size(), 1);
  EXPECT_EQ(stretches[0].best, 0.5);
  EXPECT_EQ(stretches[0].worst, 0.8);
}

TEST(Choice, leaves_out_an_algorithm_where_it_does_not_fit) {
  std::vector<Measured> list = findings({0.5, 0.5, 0.5});
  list[1].ratio.erase("ring");
  EXPECT_EQ(texts(preferred(list)), (std::vector<std::string>{"ring 0-16", "ring 65-"}));
}

TEST(Choice, joins_a_stretch_with_sizes_where_the_same_is_usual) {
  std::vector<Measured> list = findings({1, 0.5, 0.5});
  list[0] = {8, "ring", {{"direct", 2}, {"ring", 1}}};
  EXPECT_EQ(texts(preferred(list)), std::vector<std::string>{"ring 0-"});
}

TEST(Choice, sizes_close_to_each_other_are_parted_in_the_middle) {
  std::vector<Measured> list = findings({2, 0.5});
  list[1].bytes = 16;
  EXPECT_EQ(preferred(list)[0].least_bytes, 13);
}

TEST(Choice, no_bytes_end_half_way_to_the_next_size) {
  std::vector<Measured> list = findings({2, 0.5, 0.5});
  list[0].bytes = 0;
  EXPECT_EQ(texts(preferred(list)), std::vector<std::string>{"ring 17-"});
}

TEST(Choice, of_nothing_is_nothing) { EXPECT_TRUE(preferred({}).empty()); }

}  // namespace
}  // namespace sprat::cli
