// The benchmark's oracle: known values, every dtype and op, and that it sees what is wrong.
#include "cli/bench/pattern.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace sprat::cli {
namespace {

double value_at(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::f16: {
      float16 half;
      std::memcpy(&half, at, sizeof half);
      return static_cast<double>(to_float(half));
    }
    case DType::bf16: {
      bfloat16 half;
      std::memcpy(&half, at, sizeof half);
      return static_cast<double>(to_float(half));
    }
#define SPRAT_PLAIN(name, type)            \
  case DType::name: {                      \
    type value;                            \
    std::memcpy(&value, at, sizeof value); \
    return static_cast<double>(value);     \
  }
      SPRAT_PLAIN(i8, std::int8_t)
      SPRAT_PLAIN(u8, std::uint8_t)
      SPRAT_PLAIN(i16, std::int16_t)
      SPRAT_PLAIN(u16, std::uint16_t)
      SPRAT_PLAIN(i32, std::int32_t)
      SPRAT_PLAIN(u32, std::uint32_t)
      SPRAT_PLAIN(i64, std::int64_t)
      SPRAT_PLAIN(u64, std::uint64_t)
      SPRAT_PLAIN(f32, float)
      SPRAT_PLAIN(f64, double)
#undef SPRAT_PLAIN
  }
  return 0;
}

std::vector<double> values(DType dtype, const Pattern& pattern, std::size_t count) {
  std::vector<std::byte> bytes(count * size_of(dtype));
  pattern.fill(bytes.data(), 0, count);
  std::vector<double> result;
  for (std::size_t i = 0; i < count; ++i) {
    result.push_back(value_at(dtype, bytes.data() + i * size_of(dtype)));
  }
  return result;
}

double combined(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return a + b;
    case ReduceOp::prod:
      return a * b;
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
  }
  return 0;
}

/// Wraps an exact integer into a dtype; floats stay.
double wrapped(DType dtype, double value) {
  const double range = std::ldexp(1.0, static_cast<int>(8 * size_of(dtype)));
  switch (dtype) {
    case DType::i8:
    case DType::i16:
    case DType::i32:
    case DType::i64:
      return value - range * std::floor(value / range + 0.5);
    case DType::u8:
    case DType::u16:
    case DType::u32:
    case DType::u64:
      return value - range * std::floor(value / range);
    case DType::f16:
    case DType::bf16:
    case DType::f32:
    case DType::f64:
      return value;
  }
  return value;
}

bool is_float(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32 || dtype == DType::f64;
}

TEST(Pattern, result_is_the_reduction_of_the_contributions) {
  constexpr std::size_t count = 300;
  for (int ranks : {1, 2, 3, 9}) {
    for (DType dtype : all_dtypes()) {
      for (ReduceOp op : all_reduce_ops()) {
        auto expected = values(dtype, contribution_of(dtype, op, ranks, 0), count);
        for (int rank = 1; rank < ranks; ++rank) {
          const auto more = values(dtype, contribution_of(dtype, op, ranks, rank), count);
          for (std::size_t i = 0; i < count; ++i) {
            // 3^9 is below 2^53, so doubles hold every partial product exactly.
            expected[i] = combined(op, expected[i], more[i]);
          }
        }
        const auto result = values(dtype, reduction_of(dtype, op, ranks), count);
        for (std::size_t i = 0; i < count; ++i) {
          double want = wrapped(dtype, expected[i]);
          if (op == ReduceOp::avg) {
            want = is_float(dtype) ? want / ranks : std::trunc(want / ranks);
          }
          ASSERT_EQ(result[i], want)
              << name(dtype) << ' ' << name(op) << " ranks " << ranks << " element " << i;
        }
      }
    }
  }
}

TEST(Pattern, contributions_vary_between_ranks_and_elements) {
  for (DType dtype : all_dtypes()) {
    for (ReduceOp op : all_reduce_ops()) {
      const auto first = values(dtype, contribution_of(dtype, op, 4, 0), 64);
      EXPECT_NE(first, values(dtype, contribution_of(dtype, op, 4, 1), 64));
      EXPECT_NE(first, std::vector<double>(64, first[0])) << name(dtype) << ' ' << name(op);
    }
  }
}

TEST(Pattern, counts_every_element_that_differs_in_a_bit) {
  constexpr std::size_t count = 2 * Pattern::period + 5;
  for (DType dtype : all_dtypes()) {
    const Pattern pattern = bits_of(dtype, 3);
    std::vector<std::byte> data(count * size_of(dtype));
    pattern.fill(data.data(), 77, count);
    EXPECT_EQ(pattern.wrong(data.data(), 77, count), 0u);
    for (std::size_t element : {std::size_t{0}, Pattern::period, count - 1}) {
      data[(element + 1) * size_of(dtype) - 1] ^= std::byte{1};
    }
    EXPECT_EQ(pattern.wrong(data.data(), 77, count), 3u) << name(dtype);
  }
}

TEST(Pattern, sees_data_that_is_shifted_by_a_chunk) {
  constexpr std::size_t count = 8192;
  const Pattern pattern = bits_of(DType::i32, 0);
  std::vector<std::byte> data(count * 4);
  for (std::size_t shift :
       {std::size_t{1}, std::size_t{64}, std::size_t{4096}, std::size_t{1} << 20}) {
    pattern.fill(data.data(), shift, count);
    EXPECT_GT(pattern.wrong(data.data(), 0, count), count - 10) << shift;
  }
}

}  // namespace
}  // namespace sprat::cli
