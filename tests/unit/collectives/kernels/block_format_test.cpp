// Encoded blocks: every code returns, errors stay within their bound, what is not finite is not
// lost, on every instruction set.
#include "collectives/kernels/block_format.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "collectives/kernels/reduce.hpp"
#include "sprat/error.hpp"

namespace sprat::collectives {
namespace {

using Bytes = std::vector<std::byte>;
constexpr std::size_t block_bytes = wire_block_elements + wire_scale_bytes;
constexpr float float_infinity = std::numeric_limits<float>::infinity();

/// What code `bits` of a format stands for, where its scale is 1; NaN if it is never written.
float value_of_code(DType wire, unsigned bits) {
  const auto code = static_cast<std::uint8_t>(bits);
  if (wire == DType::i8) {
    return code == 0x80 ? std::nanf("") : static_cast<float>(std::bit_cast<std::int8_t>(code));
  }
  const float value =
      wire == DType::f8e4m3 ? to_float(float8_e4m3{code}) : to_float(float8_e5m2{code});
  return std::isfinite(value) ? value : std::nanf("");
}

Bytes encoded_as(DType wire, std::span<const float> values) {
  Bytes bytes(encoded_bytes(values.size()));
  encode(wire, values, bytes);
  return bytes;
}
std::vector<float> decoded_as(DType wire, std::span<const std::byte> bytes, std::size_t count) {
  std::vector<float> values(count);
  decode(wire, bytes, values);
  return values;
}
std::vector<float> returned_as(DType wire, std::span<const float> values) {
  return decoded_as(wire, encoded_as(wire, values), values.size());
}

float largest_of(std::span<const float> block) {
  float largest = 0;
  for (const float value : block) {
    largest = std::max(largest, std::fabs(value));
  }
  return largest;
}

/// The least power of two that keeps the block within the codes, or the step of i8.
float scale_by_definition(DType wire, float largest) {
  constexpr float least = std::numeric_limits<float>::min();
  if (wire == DType::i8) {
    return std::max(largest / 127, least);
  }
  const float most = wire == DType::f8e4m3 ? 448.0f : 57344.0f;
  float scale = least;
  while (largest / scale > most) {
    scale *= 2;
  }
  return scale;
}

std::uint8_t code_by_definition(DType wire, float quotient) {
  switch (wire) {
    case DType::i8:
      return std::bit_cast<std::uint8_t>(static_cast<std::int8_t>(std::nearbyint(quotient)));
    case DType::f8e4m3:
      return to_float8_e4m3(quotient).bits;
    default:
      return to_float8_e5m2(quotient).bits;
  }
}

/// Whole blocks whose numbers have like magnitudes or not, and largest ones of every size.
std::vector<float> many_blocks() {
  std::mt19937 random(3);
  std::vector<float> values;
  for (int exponent = -149; exponent <= 126; exponent += 5) {
    for (const int spread : {0, 3, 40}) {
      for (std::size_t i = 0; i < wire_block_elements; ++i) {
        const float fraction = static_cast<float>(random() >> 8) * 0x1p-23f - 1;
        const int lower =
            spread == 0 ? 0 : static_cast<int>(random() % static_cast<unsigned>(spread));
        values.push_back(std::ldexp(fraction, exponent - lower));
      }
    }
  }
  return values;
}

/// Runs `check` for every format, with the kernels of every instruction set of this processor.
template <class Check>
void for_every_block_format(const Check& check) {
  for (const std::string& target : reduce_targets()) {
    ASSERT_TRUE(use_reduce_target(target));
    for (const BlockFormat* format : all_block_formats()) {
      SCOPED_TRACE(target + " " + format->name);
      check(*format);
    }
  }
  use_reduce_target("");
}

TEST(BlockFormats, return_every_code_at_every_scale) {
  for_every_block_format([](const BlockFormat& format) {
    for (int exponent = -110; exponent <= 110; exponent += 20) {
      std::vector<float> values;
      for (unsigned bits = 0; bits < 256; ++bits) {
        const float value = value_of_code(format.dtype, bits);
        values.push_back(std::isnan(value) ? 0.0f : std::ldexp(value, exponent));
      }
      const std::vector<float> back = returned_as(format.dtype, values);
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(back[i]), std::bit_cast<std::uint32_t>(values[i]))
            << "code " << i << " times 2^" << exponent;
      }
    }
  });
}

TEST(BlockFormats, write_a_scale_and_the_nearest_codes) {
  const std::vector<float> values = many_blocks();
  for_every_block_format([&](const BlockFormat& format) {
    const Bytes bytes = encoded_as(format.dtype, values);
    for (std::size_t first = 0; first < values.size(); first += wire_block_elements) {
      const auto block = std::span(values).subspan(first, wire_block_elements);
      const std::byte* const at = bytes.data() + first / wire_block_elements * block_bytes;
      float scale = 0;
      std::memcpy(&scale, at, sizeof scale);
      ASSERT_EQ(scale, scale_by_definition(format.dtype, largest_of(block)));
      for (std::size_t i = 0; i < block.size(); ++i) {
        ASSERT_EQ(std::to_integer<int>(at[wire_scale_bytes + i]),
                  int{code_by_definition(format.dtype, block[i] * (1 / scale))})
            << block[i] << " at scale " << scale;
      }
    }
  });
}

TEST(BlockFormats, err_by_no_more_than_their_bound) {
  const std::vector<float> values = many_blocks();
  for_every_block_format([&](const BlockFormat& format) {
    const std::vector<float> back = returned_as(format.dtype, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t first = i / wire_block_elements * wire_block_elements;
      const double largest =
          double{largest_of(std::span(values).subspan(first, wire_block_elements))};
      const double bound = std::max(
          {format.relative * std::fabs(double{values[i]}), format.absolute * largest, 0x1p-127});
      ASSERT_LE(std::fabs(double{back[i]} - double{values[i]}), bound)
          << values[i] << " in a block of " << largest;
    }
  });
}

TEST(BlockFormats, a_block_with_a_nan_or_an_infinity_is_nan_and_no_other) {
  for_every_block_format([](const BlockFormat& format) {
    for (const float odd :
         {std::nanf(""), -std::nanf("0x7fffff"), float_infinity, -float_infinity}) {
      for (const std::size_t place : {0, 100, 255, 256, 511, 600, 699}) {
        std::vector<float> values(700, 1.5f);
        values[place] = odd;
        const std::vector<float> back = returned_as(format.dtype, values);
        for (std::size_t i = 0; i < values.size(); ++i) {
          ASSERT_EQ(std::isnan(back[i]), i / wire_block_elements == place / wire_block_elements)
              << odd << " at " << place << ", element " << i;
        }
      }
    }
  });
}

TEST(BlockFormats, a_block_of_zeros_is_zeros) {
  for_every_block_format([](const BlockFormat& format) {
    std::vector<float> values(600, 0.0f);
    values[300] = -0.0f;
    for (const float value : returned_as(format.dtype, values)) {
      ASSERT_EQ(value, 0.0f);
    }
  });
}

TEST(BlockFormats, a_short_block_is_one_that_ends_in_zeros) {
  for_every_block_format([](const BlockFormat& format) {
    for (const std::size_t count : {1, 3, 17, 255, 257, 511}) {
      std::vector<float> values(many_blocks());
      values.resize(count);
      const Bytes bytes = encoded_as(format.dtype, values);
      const std::vector<float> back = decoded_as(format.dtype, bytes, count);
      values.resize(bytes.size() / block_bytes * wire_block_elements);
      ASSERT_EQ(bytes, encoded_as(format.dtype, values)) << count;
      const std::vector<float> whole = returned_as(format.dtype, values);
      ASSERT_TRUE(std::ranges::equal(back, std::span(whole).first(count))) << count;
    }
  });
}

TEST(BlockFormats, do_not_depend_on_the_rounding_mode_of_the_thread) {
  const std::vector<float> values = many_blocks();
  for_every_block_format([&](const BlockFormat& format) {
    const Bytes bytes = encoded_as(format.dtype, values);
    const std::vector<float> back = decoded_as(format.dtype, bytes, values.size());
    for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
      ASSERT_EQ(std::fesetround(mode), 0);
      const Bytes again = encoded_as(format.dtype, values);
      const std::vector<float> back_again = decoded_as(format.dtype, again, values.size());
      std::fesetround(FE_TONEAREST);
      ASSERT_EQ(again, bytes);
      ASSERT_EQ(back_again, back);
    }
  });
}

/// The canonical tree over numbers, as docs/numerics.md defines it.
float tree_by_definition(std::span<const float> numbers) {
  if (numbers.size() == 1) {
    return numbers[0];
  }
  const std::size_t middle = std::bit_floor(numbers.size() - 1);
  return tree_by_definition(numbers.first(middle)) + tree_by_definition(numbers.subspan(middle));
}

TEST(BlockFormats, are_summed_in_f32_by_the_canonical_tree) {
  constexpr std::size_t count = 5000;
  std::mt19937 random(11);
  for (const BlockFormat* format : all_block_formats()) {
    for (std::size_t ranks = 1; ranks <= 9; ++ranks) {
      std::vector<Bytes> contributions;
      std::vector<std::vector<float>> numbers;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        std::vector<float> values(count);
        std::ranges::generate(values, [&] { return static_cast<float>(random() >> 8) - 0x1p23f; });
        contributions.push_back(encoded_as(format->dtype, values));
        numbers.push_back(decoded_as(format->dtype, contributions.back(), count));
      }
      std::vector<float> sum(count);
      sum_encoded(
          format->dtype,
          std::vector<std::span<const std::byte>>(contributions.begin(), contributions.end()), sum);
      for (std::size_t i = 0; i < count; ++i) {
        std::vector<float> column;
        for (const std::vector<float>& of_rank : numbers) {
          column.push_back(of_rank[i]);
        }
        ASSERT_EQ(sum[i], tree_by_definition(column)) << format->name << " of " << ranks;
      }
    }
  }
}

TEST(BlockFormats, feedback_keeps_the_error_of_all_steps_within_that_of_one) {
  constexpr std::size_t count = 1000;
  constexpr int steps = 50;
  for (const BlockFormat* format : all_block_formats()) {
    std::mt19937 random(5);
    std::vector<float> residual(count, 0.0f);
    std::vector<double> wanted(count, 0.0), sent(count, 0.0);
    for (int step = 0; step < steps; ++step) {
      std::vector<float> values(count);
      // Multiples of 2^-12 below 1: sums with residuals are nearly exact, and steps seldom are.
      std::ranges::generate(values, [&] { return static_cast<float>(random() % 4096) * 0x1p-12f; });
      Bytes bytes(encoded_bytes(count));
      encode_with_feedback(format->dtype, values, residual, bytes);
      const std::vector<float> back = decoded_as(format->dtype, bytes, count);
      for (std::size_t i = 0; i < count; ++i) {
        wanted[i] += double{values[i]};
        sent[i] += double{back[i]};
      }
    }
    // A block's largest is at most 1 and what was lost before, which is a fraction of that.
    const double one_step = 2 * std::max(format->relative, format->absolute);
    const double rounding = steps * 2 * 0x1p-24;
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_LE(std::fabs(wanted[i] - sent[i]), one_step + rounding) << format->name;
    }
  }
}

TEST(BlockFormats, feedback_forgets_a_block_that_is_not_finite) {
  for (const BlockFormat* format : all_block_formats()) {
    std::vector<float> values(512), residual(512, 0.25f);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = 1 / (1.7f + static_cast<float>(i));
    }
    values[3] = std::nanf("");
    Bytes bytes(encoded_bytes(values.size()));
    encode_with_feedback(format->dtype, values, residual, bytes);
    EXPECT_EQ(std::ranges::count(std::span(residual).first(256), 0.0f), 256) << format->name;
    EXPECT_LT(std::ranges::count(std::span(residual).last(256), 0.0f), 256) << format->name;
    EXPECT_TRUE(std::ranges::all_of(residual, [](float one) { return std::isfinite(one); }));
  }
}

TEST(BlockFormats, refuse_types_without_scales_and_sizes_that_do_not_fit) {
  const std::vector<float> values(300);
  Bytes bytes(encoded_bytes(300));
  EXPECT_EQ(bytes.size(), 2 * block_bytes);
  EXPECT_THROW(encode(DType::bf16, values, bytes), Error);
  EXPECT_THROW(encode(DType::i8, std::span(values).first(256), bytes), Error);
  EXPECT_FALSE(has_block_scales(DType::f32));
  EXPECT_TRUE(has_block_scales(DType::f8e5m2));
}

}  // namespace
}  // namespace sprat::collectives
