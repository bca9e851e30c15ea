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
    case DType::f8e4m3:
      return static_cast<double>(to_float(float8_e4m3{std::to_integer<std::uint8_t>(*at)}));
    case DType::f8e5m2:
      return static_cast<double>(to_float(float8_e5m2{std::to_integer<std::uint8_t>(*at)}));
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
      SPRAT_PLAIN(boolean, std::uint8_t)
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

double combined(DType dtype, ReduceOp op, double a, double b) {
  if (dtype == DType::boolean) {
    const bool left = a != 0, right = b != 0;
    const bool both = left && right, either = left || right;
    const bool results[] = {either, both,   both,          either, false,
                            both,   either, left != right, both,   either};
    return results[static_cast<int>(op)] ? 1 : 0;
  }
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
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
      break;  // Not of values: combined_bytes().
    case ReduceOp::land:
      return a != 0 && b != 0 ? 1 : 0;
    case ReduceOp::lor:
      return a != 0 || b != 0 ? 1 : 0;
    case ReduceOp::premultiplied_sum:
    case ReduceOp::user:
      break;
  }
  return 0;
}

bool works_on_bits(ReduceOp op) {
  return op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
}

std::byte combined_bytes(ReduceOp op, std::byte a, std::byte b) {
  return op == ReduceOp::band ? a & b : op == ReduceOp::bor ? a | b : a ^ b;
}

/// The number of an 8-bit format nearest to `value`; of two as near, the one of the even pattern.
double nearest(DType dtype, double value) {
  double best = 0;
  int best_pattern = 0;
  for (int pattern = 0; pattern < 256; ++pattern) {
    const auto byte = static_cast<std::byte>(pattern);
    const double candidate = value_at(dtype, &byte);
    const double gain = std::abs(best - value) - std::abs(candidate - value);
    if (gain > 0 || (gain == 0 && candidate != best && best_pattern % 2 == 1)) {
      best = candidate;
      best_pattern = pattern;
    }
  }
  return best;
}

/// Wraps an exact integer into a dtype; wide floats stay, 8-bit floats are rounded.
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
    case DType::boolean:
      return value;
    case DType::f8e4m3:
    case DType::f8e5m2:
      return nearest(dtype, value);
  }
  return value;
}

bool is_float(DType dtype) { return !takes(ReduceOp::band, dtype); }

TEST(Pattern, result_is_the_reduction_of_the_contributions) {
  constexpr std::size_t count = 300;
  for (int ranks : {1, 2, 3, 9}) {
    for (DType dtype : all_dtypes()) {
      for (ReduceOp op : all_reduce_ops()) {
        if (!takes(op, dtype) || (works_on_bits(op) && dtype != DType::boolean)) {
          continue;
        }
        auto expected = values(dtype, contribution_of(dtype, op, ranks, 0), count);
        for (int rank = 1; rank < ranks; ++rank) {
          const auto more = values(dtype, contribution_of(dtype, op, ranks, rank), count);
          for (std::size_t i = 0; i < count; ++i) {
            // 3^9 is below 2^53, so doubles hold every partial product exactly.
            expected[i] = combined(dtype, op, expected[i], more[i]);
          }
        }
        const auto result = values(dtype, reduction_of(dtype, op, ranks), count);
        for (std::size_t i = 0; i < count; ++i) {
          double want = expected[i];
          if (op == ReduceOp::avg) {
            want = is_float(dtype) ? want / ranks : std::trunc(wrapped(dtype, want) / ranks);
          }
          if (dtype == DType::boolean || op == ReduceOp::land || op == ReduceOp::lor) {
            want = want != 0;  // of one rank, too
          }
          want = wrapped(dtype, want);
          ASSERT_EQ(result[i], want)
              << name(dtype) << ' ' << name(op) << " ranks " << ranks << " element " << i;
        }
      }
    }
  }
}

TEST(Pattern, result_of_bits_is_that_of_their_bytes) {
  constexpr int ranks = 3;
  for (DType dtype : all_dtypes()) {
    for (ReduceOp op : {ReduceOp::band, ReduceOp::bor, ReduceOp::bxor}) {
      if (!takes(op, dtype) || dtype == DType::boolean) {
        continue;
      }
      std::vector<std::byte> expected(300 * size_of(dtype)), more(expected.size());
      contribution_of(dtype, op, ranks, 0).fill(expected.data(), 0, 300);
      for (int rank = 1; rank < ranks; ++rank) {
        contribution_of(dtype, op, ranks, rank).fill(more.data(), 0, 300);
        for (std::size_t i = 0; i < more.size(); ++i) {
          expected[i] = combined_bytes(op, expected[i], more[i]);
        }
      }
      EXPECT_EQ(reduction_of(dtype, op, ranks).wrong(expected.data(), 0, 300), 0u)
          << name(dtype) << ' ' << name(op);
    }
  }
}

TEST(Pattern, contributions_vary_between_ranks_and_elements) {
  for (DType dtype : all_dtypes()) {
    for (ReduceOp op : all_reduce_ops()) {
      if (!takes(op, dtype)) {
        continue;
      }
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
