// Blocks that share the memory of their elements.
#include "fsdp/encoded_array.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "fsdp/rounding.hpp"
#include "sprat/wire.hpp"
#include "tests/unit/fsdp/small_model.hpp"

namespace sprat::fsdp {
namespace {

constexpr std::size_t array_elements = 7 * wire_block_elements;

std::vector<float> noise_of(std::size_t elements) {
  std::vector<float> values;
  for (std::size_t i = 0; i < elements; ++i) {
    values.push_back(noise(i));
  }
  return values;
}

/// `array_elements` values of a dtype, and room for as many.
struct TypedArray {
  DType dtype;
  std::vector<std::byte> memory;
  explicit TypedArray(DType type) : dtype(type), memory(array_elements * size_of(type)) {
    narrow(type, noise_of(array_elements), memory.data());
  }
  Elements all() { return {.data = memory.data(), .count = array_elements, .dtype = dtype}; }
  std::vector<float> values() const {
    std::vector<float> wide(array_elements);
    widen(dtype, memory.data(), wide);
    return wide;
  }
};

TEST(EncodedArray, is_encoded_and_decoded_where_it_lies) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const DType wire : {DType::i8, DType::f8e4m3, DType::f8e5m2}) {
      TypedArray array(dtype);
      std::vector<std::byte> bytes(encoded_bytes(array_elements));
      encode(wire, array.values(), bytes);
      const EncodedArray encoded(array.all(), wire);
      encoded.encode(array.all(), 0);
      EXPECT_EQ(encoded.blocks().bytes(), bytes.size());
      EXPECT_EQ(std::memcmp(encoded.blocks().data, bytes.data(), bytes.size()), 0)
          << name(dtype) << " as " << name(wire);
      std::vector<float> expected(array_elements);
      decode(wire, bytes, expected);
      std::vector<std::byte> narrowed(array.memory.size());
      narrow(dtype, expected, narrowed.data());
      encoded.decode();
      EXPECT_EQ(array.memory, narrowed) << name(dtype) << " as " << name(wire);
    }
  }
}

TEST(EncodedArray, any_part_is_encoded_from_its_own_elements) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (std::size_t first = 0; first < 7; ++first) {
      for (std::size_t blocks = 1; first + blocks <= 7; ++blocks) {
        const std::size_t offset = first * wire_block_elements;
        const std::size_t elements = blocks * wire_block_elements;
        TypedArray array(dtype);
        const std::vector<float> values = array.values();
        std::vector<std::byte> bytes(encoded_bytes(elements));
        encode(DType::i8, std::span(values).subspan(offset, elements), bytes);
        const EncodedArray encoded(array.all(), DType::i8);
        encoded.encode({array.memory.data() + offset * size_of(dtype), elements, dtype}, offset);
        EXPECT_EQ(std::memcmp(encoded.blocks(offset, elements).data, bytes.data(), bytes.size()), 0)
            << name(dtype) << ", " << blocks << " blocks from " << first;
      }
    }
  }
}

}  // namespace
}  // namespace sprat::fsdp
