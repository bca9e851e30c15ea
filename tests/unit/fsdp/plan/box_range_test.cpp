// Ranges of what lies one after another in a box, held against the elements one by one.
#include "fsdp/plan/box_range.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/unit/comm/base/refused.hpp"

namespace sprat::fsdp::box_range_test {
namespace {

using Places = std::vector<std::int64_t>;

struct RangeCase {
  Places shape;
  Box box;
};
const std::vector<RangeCase> range_cases = {
    {{}, {}},
    {{5}, {{0}, {5}}},
    {{7}, {{2}, {4}}},
    {{4, 3}, {{0, 0}, {4, 3}}},
    {{4, 5}, {{1, 2}, {3, 2}}},
    {{1, 6}, {{0, 1}, {1, 4}}},
    {{3, 4, 5}, {{0, 1, 0}, {3, 2, 5}}},
    {{3, 4, 5}, {{1, 1, 1}, {2, 3, 3}}},
    {{2, 3, 2, 4}, {{0, 1, 0, 1}, {2, 2, 2, 3}}},
    {{2, 1, 1, 3}, {{0, 0, 0, 0}, {2, 1, 1, 3}}},
    {{3, 4}, {{1, 1}, {2, 0}}},
};

/// Where the elements of a box lie in the whole tensor.
Places places_of(const Places& shape, const Box& box) {
  Places places = {0};
  for (std::size_t d = 0; d < shape.size(); ++d) {
    Places deeper;
    for (const std::int64_t at : places) {
      for (std::int64_t i = 0; i < box.extent[d]; ++i) {
        deeper.push_back(at * shape[d] + box.offset[d] + i);
      }
    }
    places = deeper;
  }
  return places;
}

TEST(BoxRange, is_its_elements_in_their_order) {
  for (const auto& [shape, box] : range_cases) {
    const Places all = places_of(shape, box);
    for (std::size_t first = 0; first <= all.size(); ++first) {
      for (std::size_t end = first; end <= all.size(); ++end) {
        const Places expected(all.begin() + static_cast<std::ptrdiff_t>(first),
                              all.begin() + static_cast<std::ptrdiff_t>(end));
        Places of_boxes, of_runs;
        const std::vector<Box> boxes = boxes_of_range(box, first, end - first);
        for (const Box& part : boxes) {
          const Places places = places_of(shape, part);
          of_boxes.insert(of_boxes.end(), places.begin(), places.end());
        }
        for_each_run_of_range(shape, box, first, end - first, [&](BoxRun run) {
          for (std::int64_t i = 0; i < run.count; ++i) {
            of_runs.push_back(run.offset + i);
          }
        });
        ASSERT_EQ(of_boxes, expected) << describe(box) << ' ' << first << ' ' << end;
        ASSERT_EQ(of_runs, expected) << describe(box) << ' ' << first << ' ' << end;
        ASSERT_LE(boxes.size(), shape.empty() ? 1 : 2 * shape.size() - 1) << describe(box);
      }
    }
  }
}

TEST(BoxRange, beyond_the_box_is_refused) {
  EXPECT_EQ(message_of([] {
              boxes_of_range({{0, 1}, {2, 3}}, 4, 3);
            }),
            "elements 4 to 7 of the box [0:2, 1:4], which has 6");
}

}  // namespace
}  // namespace sprat::fsdp::box_range_test
