// Boxes: cutting a tensor by some and joining it by others changes nothing.
#include "sprat/parameters.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/comm/base/refused.hpp"

namespace sprat::parameters_test {
namespace {

using Shape = std::vector<std::int64_t>;
using Boxes = std::vector<Box>;

const std::vector<Shape> box_shapes = {{},        {1},       {5},         {4, 3},    {1, 6},
                                       {3, 1},    {2, 3, 4}, {3, 1, 2},   {1, 1, 1}, {4, 4},
                                       {2, 2, 5}, {5, 2},    {2, 1, 3, 2}};

/// Every box inside a tensor of this shape, empty ones left out.
Boxes all_boxes(const Shape& shape) {
  Boxes all = {Box{}};
  for (const std::int64_t length : shape) {
    Boxes longer;
    for (const Box& box : all) {
      for (std::int64_t begin = 0; begin < length; ++begin) {
        for (std::int64_t end = begin + 1; end <= length; ++end) {
          longer.push_back(box);
          longer.back().offset.push_back(begin);
          longer.back().extent.push_back(end - begin);
        }
      }
    }
    all = std::move(longer);
  }
  return all;
}

/// Every way to cut along up to two dimensions into up to three pieces each.
std::vector<Boxes> all_cuts(const Shape& shape) {
  std::vector<Boxes> cuts = {{whole_box(shape)}};
  for (int first = 0; first < int(shape.size()); ++first) {
    for (int second = first; second < int(shape.size()); ++second) {
      for (int a = 1; a <= 3; ++a) {
        for (int b = 1; b <= 3; ++b) {
          Boxes parts;
          for (int i = 0; i < a; ++i) {
            for (int j = 0; j < b; ++j) {
              const Box row = piece_of(whole_box(shape), first, a, i);
              parts.push_back(piece_of(row, second, b, j));
            }
          }
          cuts.push_back(parts);
        }
      }
    }
  }
  return cuts;
}

using Values = std::vector<int>;

/// What of `values`, which `from` holds, lies in each of the boxes.
void copy_all(const Box& from, const Values& values, const Boxes& boxes,
              std::vector<Values>& parts) {
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    for_each_copy(from, boxes[i], [&](BoxCopy copy) {
      for (std::int64_t at = 0; at < copy.count; ++at) {
        parts[i].at(copy.to + at) += values.at(copy.from + at);
      }
    });
  }
}

std::vector<Values> zeros(const Boxes& boxes) {
  std::vector<Values> parts;
  for (const Box& box : boxes) {
    parts.emplace_back(element_count(box), 0);
  }
  return parts;
}

TEST(Box, a_tensor_cut_in_one_way_and_then_another_comes_back_whole) {
  for (const Shape& shape : box_shapes) {
    const Box whole = whole_box(shape);
    Values tensor(element_count(whole));
    std::iota(tensor.begin(), tensor.end(), 1);
    const auto cuts = all_cuts(shape);
    for (const Boxes& first : cuts) {
      std::vector<Values> held = zeros(first);
      copy_all(whole, tensor, first, held);
      for (const Boxes& second : cuts) {
        std::vector<Values> moved = zeros(second), joined = zeros({whole});
        for (std::size_t i = 0; i < first.size(); ++i) {
          copy_all(first[i], held[i], second, moved);
        }
        for (std::size_t i = 0; i < second.size(); ++i) {
          copy_all(second[i], moved[i], {whole}, joined);
        }
        ASSERT_EQ(joined.front(), tensor) << describe(whole);
      }
    }
  }
}

/// The positions of a part's elements in row-major order, element by element.
std::vector<std::int64_t> positions(const Box& outer, const Box& part) {
  std::vector<std::int64_t> out = {0};
  for (std::size_t d = 0; d < part.extent.size(); ++d) {
    std::vector<std::int64_t> deeper;
    for (const std::int64_t at : out) {
      for (std::int64_t i = 0; i < part.extent[d]; ++i) {
        deeper.push_back(at * outer.extent[d] + part.offset[d] - outer.offset[d] + i);
      }
    }
    out = std::move(deeper);
  }
  return out;
}

TEST(Box, runs_visit_each_element_once_in_as_few_pieces_as_there_are) {
  for (const Shape& shape : box_shapes) {
    for (const Box& part : all_boxes(shape)) {
      std::vector<BoxRun> runs, expected;
      for_each_run(whole_box(shape), part, [&](BoxRun run) { runs.push_back(run); });
      for (const std::int64_t at : positions(whole_box(shape), part)) {
        if (!expected.empty() && expected.back().offset + expected.back().count == at) {
          ++expected.back().count;
        } else {
          expected.push_back({at, 1});
        }
      }
      ASSERT_EQ(runs, expected) << describe(part) << " of " << describe(whole_box(shape));
    }
  }
}

TEST(Box, intersections_hold_what_both_hold) {
  for (const Shape& shape : {Shape{4}, Shape{3, 3}, Shape{2, 2, 2}}) {
    const Box whole = whole_box(shape);
    const Boxes boxes = all_boxes(shape);
    for (const Box& a : boxes) {
      for (const Box& b : boxes) {
        const auto in_a = positions(whole, a), in_b = positions(whole, b);
        std::vector<std::int64_t> common;
        std::ranges::set_intersection(in_a, in_b, std::back_inserter(common));
        const auto both = intersection(a, b);
        ASSERT_EQ(both ? positions(whole, *both) : std::vector<std::int64_t>{}, common)
            << describe(a) << ' ' << describe(b);
        ASSERT_EQ(contains(a, b), common == in_b) << describe(a) << ' ' << describe(b);
      }
    }
  }
}

TEST(Box, pieces_differ_by_one_and_begin_at_their_share_rounded_down) {
  std::vector<Box> pieces;
  for (int i = 0; i < 4; ++i) {
    pieces.push_back(piece_of({{2, 1}, {3, 10}}, 1, 4, i));
  }
  EXPECT_EQ(pieces,
            (Boxes{{{2, 1}, {3, 2}}, {{2, 3}, {3, 3}}, {{2, 6}, {3, 2}}, {{2, 8}, {3, 3}}}));
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(piece_of(whole_box({most}), 0, 2, 1), (Box{{most / 2}, {most / 2 + 1}}));
}

TEST(Box, pieces_of_pieces_are_those_of_the_whole_where_each_time_it_is_halved) {
  for (std::int64_t extent = 0; extent <= 40; ++extent) {
    for (int index = 0; index < 4; ++index) {
      const Box half = piece_of(whole_box({extent}), 0, 2, index / 2);
      EXPECT_EQ(piece_of(half, 0, 2, index % 2), piece_of(whole_box({extent}), 0, 4, index))
          << extent;
    }
  }
}

TEST(Box, an_empty_box_is_in_every_other_and_has_no_runs) {
  const Box empty{{9, 0}, {0, 2}};
  EXPECT_EQ(element_count(empty), 0);
  EXPECT_TRUE(contains(whole_box({2, 2}), empty));
  for_each_run(whole_box({2, 2}), empty, [](BoxRun run) { ADD_FAILURE() << run.count; });
}

TEST(Box, what_makes_no_sense_is_refused_with_its_values) {
  const std::vector<std::pair<std::function<void()>, const char*>> cases = {
      {[] {
         whole_box({2, -1});
       },
       "a box has offset 0 and extent -1 along dimension 1; both are 0 or more"},
      {[] {
         element_count({{0}, {}});
       },
       "a box has 1 offsets and 0 extents; it has one of each for each dimension"},
      {[] {
         intersection(whole_box({2}), whole_box({2, 3}));
       },
       "the boxes [0:2] and [0:2, 0:3] have 1 and 2 dimensions; they need as many"},
      {[] {
         for_each_run(whole_box({2}), {{1}, {2}}, [](BoxRun) {});
       },
       "the box [0:2] does not contain [1:3]"},
      {[] { piece_of(whole_box({2}), 1, 1, 0); }, "the box [0:2] has no dimension 1"},
      {[] { piece_of(whole_box({2}), 0, 2, 2); },
       "piece 2 of 2 does not exist; pieces are counted from 0"},
  };
  for (const auto& [call, message] : cases) {
    EXPECT_EQ(message_of(call), message);
  }
}

}  // namespace
}  // namespace sprat::parameters_test
