// Boxes that make up a tensor, and those that do not: held against counting every element.
#include "checkpoint/plan/cover.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "tests/unit/checkpoint/random_cuts.hpp"
#include "tests/unit/comm/base/refused.hpp"

namespace sprat::fsdp::cover_test {
namespace {

using Shape = std::vector<std::int64_t>;

std::optional<CoverFault> counted(const Shape& shape, const std::vector<Box>& boxes) {
  const Box whole = whole_box(shape);
  std::vector<int> times(static_cast<std::size_t>(element_count(whole)), 0);
  for (const Box& box : boxes) {
    for_each_run(whole, box, [&](BoxRun run) {
      for (std::int64_t i = 0; i < run.count; ++i) {
        ++times[static_cast<std::size_t>(run.offset + i)];
      }
    });
  }
  for (std::size_t at = 0; at < times.size(); ++at) {
    if (times[at] != 1) {
      Shape element(shape.size());
      auto rest = static_cast<std::int64_t>(at);
      for (std::size_t d = shape.size(); d-- > 0; rest /= shape[d]) {
        element[d] = rest % shape[d];
      }
      return CoverFault{.element = element, .is_twice = times[at] > 1};
    }
  }
  return std::nullopt;
}

TEST(Cover, by_any_grid_is_whole_and_any_change_of_it_is_found_where_it_is) {
  std::mt19937_64 draw(1);
  int faults = 0;
  for (int round = 0; round < 400; ++round) {
    const Shape shape = random_shape(draw);
    std::vector<Box> boxes = random_grid(draw, shape);
    ASSERT_EQ(cover_fault(shape, boxes), std::nullopt) << describe(whole_box(shape));
    for (int change = 0; change < 4; ++change) {
      std::vector<Box> changed = boxes;
      const std::size_t at = draw() % changed.size();
      if (change == 0) {
        changed.erase(changed.begin() + static_cast<std::ptrdiff_t>(at));
      } else if (change == 1) {
        changed.push_back(changed[at]);
      } else {
        changed[at] = random_box(draw, shape);
      }
      const auto fault = cover_fault(shape, changed);
      ASSERT_EQ(fault, counted(shape, changed)) << describe(whole_box(shape));
      faults += fault.has_value();
    }
  }
  EXPECT_GT(faults, 500);
}

TEST(Cover, need_not_be_a_grid) {
  const std::vector<Box> pinwheel = {
      {{0, 0}, {1, 2}}, {{0, 2}, {2, 1}}, {{2, 1}, {1, 2}}, {{1, 0}, {2, 1}}, {{1, 1}, {1, 1}}};
  EXPECT_EQ(cover_fault({3, 3}, pinwheel), std::nullopt);
}

TEST(Cover, of_nothing_asks_for_nothing_and_of_one_element_for_it) {
  EXPECT_EQ(cover_fault({0, 3}, std::vector<Box>{}), std::nullopt);
  EXPECT_EQ(cover_fault({}, std::vector<Box>{Box{}}), std::nullopt);
  EXPECT_EQ(cover_fault({}, std::vector<Box>{}), (CoverFault{.element = {}, .is_twice = false}));
}

TEST(Cover, by_cuts_along_too_many_dimensions_is_refused) {
  const Shape shape(9, 2);
  EXPECT_EQ(message_of([&] {
              cover_fault(shape, std::vector<Box>{{Shape(9, 0), Shape(9, 1)}});
            }),
            "a tensor is cut along 9 dimensions at once; at most 8 may be");
}

}  // namespace
}  // namespace sprat::fsdp::cover_test
