// Reading boxes out of other boxes, held against the elements one by one.
#include "checkpoint/plan/reads.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "sprat/error.hpp"
#include "tests/unit/checkpoint/random_cuts.hpp"

namespace sprat::fsdp::reads_test {
namespace {

using Shape = std::vector<std::int64_t>;
using Numbers = std::vector<std::int64_t>;

/// The numbers that the elements of a box have in the whole tensor.
Numbers numbers_of(const Shape& shape, const Box& box) {
  Numbers numbers;
  for_each_run(whole_box(shape), box, [&](BoxRun run) {
    for (std::int64_t i = 0; i < run.count; ++i) {
      numbers.push_back(run.offset + i);
    }
  });
  return numbers;
}

StoredTensor stored_as(const Shape& shape, const std::vector<Box>& boxes) {
  StoredTensor tensor{.name = "t", .shape = shape, .boxes = {}};
  for (const Box& box : boxes) {
    tensor.boxes.push_back({.file = 0, .begin = 0, .box = box});
  }
  sort_boxes(tensor);
  return tensor;
}

/// How often an element does not lie behind the one before it, in a stored box and in the range.
std::uint64_t fewest_runs(const std::vector<Numbers>& stored, const Numbers& wanted) {
  std::uint64_t runs = 0;
  for (const Numbers& box : stored) {
    std::ptrdiff_t last_from = -2, last_to = -2;
    for (std::ptrdiff_t to = 0; to < std::ssize(wanted); ++to) {
      const auto found = std::ranges::lower_bound(box, wanted[static_cast<std::size_t>(to)]);
      if (found == box.end() || *found != wanted[static_cast<std::size_t>(to)]) {
        continue;
      }
      const std::ptrdiff_t from = found - box.begin();
      runs += from != last_from + 1 || to != last_to + 1;
      last_from = from;
      last_to = to;
    }
  }
  return runs;
}

TEST(Reads, of_any_range_of_any_box_take_each_element_once_in_the_fewest_runs) {
  std::mt19937_64 draw(2);
  for (int round = 0; round < 2000; ++round) {
    const Shape shape = random_shape(draw);
    const StoredTensor tensor = stored_as(shape, random_grid(draw, shape));
    std::vector<Numbers> stored;
    for (const StoredBox& box : tensor.boxes) {
      stored.push_back(numbers_of(shape, box.box));
    }
    const Box part = random_box(draw, shape);
    const Numbers all = numbers_of(shape, part);
    const std::size_t first = draw() % all.size();
    const std::size_t count = 1 + draw() % (all.size() - first);
    const Numbers wanted(all.begin() + static_cast<std::ptrdiff_t>(first),
                         all.begin() + static_cast<std::ptrdiff_t>(first + count));
    Numbers got(count, -1);
    std::uint64_t runs = 0;
    for (const BoxRead& read : plan_reads(tensor, part, first, count)) {
      runs += read.times;
      for (std::uint64_t time = 0; time < read.times; ++time) {
        for (std::uint64_t i = 0; i < read.count; ++i) {
          std::int64_t& value = got.at(read.to + time * read.to_stride + i);
          ASSERT_EQ(value, -1) << "read twice";
          value = stored[read.box].at(read.from + time * read.from_stride + i);
        }
      }
    }
    ASSERT_EQ(got, wanted) << describe(part) << " of " << describe(whole_box(shape));
    ASSERT_EQ(runs, fewest_runs(stored, wanted))
        << describe(part) << " of " << describe(whole_box(shape));
  }
}

TEST(Reads, of_a_matrix_are_at_most_three_a_stored_box_however_many_rows_it_has) {
  const Shape shape = {10'000, 64};
  const Box left = piece_of(whole_box(shape), 1, 2, 0), right = piece_of(whole_box(shape), 1, 2, 1);
  const auto from_whole = plan_reads(stored_as(shape, {whole_box(shape)}), right, 100, 9'000 * 32);
  EXPECT_EQ(from_whole,
            (std::vector<BoxRead>{
                {.box = 0, .from = 3 * 64 + 36, .to = 0, .count = 28},
                {.box = 0,
                 .from = 4 * 64 + 32,
                 .to = 28,
                 .count = 32,
                 .times = 8'999,
                 .from_stride = 64,
                 .to_stride = 32},
                {.box = 0, .from = 9'003 * 64 + 32, .to = 28 + 8'999 * 32, .count = 4}}));
  const auto from_halves = plan_reads(stored_as(shape, {left, right}), right, 100, 9'000 * 32);
  EXPECT_EQ(from_halves,
            (std::vector<BoxRead>{{.box = 1, .from = 100, .to = 0, .count = 9'000 * 32}}));
}

TEST(Reads, of_an_element_that_is_not_stored_are_refused_by_the_tensors_name) {
  const StoredTensor tensor = stored_as({4, 4}, {{{0, 0}, {4, 3}}});
  try {
    plan_reads(tensor, whole_box({4, 4}), 0, 16);
    FAIL() << "planned";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_THAT(error.what(), testing::HasSubstr("tensor \"t\" is not whole"));
  }
}

}  // namespace
}  // namespace sprat::fsdp::reads_test
