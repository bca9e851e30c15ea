// NCCL's element types as the tests compute with them: a double in, the type's bits out, and back.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/system/nccl/api.h"

namespace sprat::nccl_tests {

/// A small float of the given bits; `value` is rounded to nearest, ties to even. Normal numbers
/// only, which is all that tests use.
struct SmallFloat {
  int exponent_bits, mantissa_bits;
  std::uint32_t encode(double value) const {
    if (value == 0) {
      return 0;
    }
    const int bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = 0;
    const double fraction = std::frexp(std::fabs(value), &exponent);  // in [0.5, 1)
    double mantissa = std::nearbyint(std::ldexp(fraction, mantissa_bits + 1));
    if (mantissa == std::ldexp(1.0, mantissa_bits + 1)) {
      mantissa /= 2;
      ++exponent;
    }
    const auto field = static_cast<std::uint32_t>(exponent - 1 + bias);
    const auto rest = static_cast<std::uint32_t>(mantissa) - (1u << mantissa_bits);
    const std::uint32_t sign = value < 0 ? 1u << (exponent_bits + mantissa_bits) : 0;
    return sign | field << mantissa_bits | rest;
  }
};

struct Type {
  ncclDataType_t type;
  const char* name;
  std::size_t bytes;
  bool is_integer;
};
inline const std::vector<Type>& all_types() {
  static const std::vector<Type> types = {
      {ncclInt8, "int8", 1, true},        {ncclUint8, "uint8", 1, true},
      {ncclInt32, "int32", 4, true},      {ncclUint32, "uint32", 4, true},
      {ncclInt64, "int64", 8, true},      {ncclUint64, "uint64", 8, true},
      {ncclFloat16, "float16", 2, false}, {ncclFloat32, "float32", 4, false},
      {ncclFloat64, "float64", 8, false}, {ncclBfloat16, "bfloat16", 2, false},
      {ncclFloat8e4m3, "e4m3", 1, false}, {ncclFloat8e5m2, "e5m2", 1, false}};
  return types;
}

/// Integers wrap, and are cut toward zero; floats are rounded.
inline void put(const Type& type, void* to, double value) {
  const auto store = [to](auto number) { std::memcpy(to, &number, sizeof(number)); };
  const auto integer = static_cast<std::int64_t>(value);
  switch (type.type) {
    case ncclFloat16:
      return store(static_cast<std::uint16_t>(SmallFloat{5, 10}.encode(value)));
    case ncclBfloat16:
      return store(static_cast<std::uint16_t>(SmallFloat{8, 7}.encode(value)));
    case ncclFloat8e4m3:
      return store(static_cast<std::uint8_t>(SmallFloat{4, 3}.encode(value)));
    case ncclFloat8e5m2:
      return store(static_cast<std::uint8_t>(SmallFloat{5, 2}.encode(value)));
    case ncclFloat32:
      return store(static_cast<float>(value));
    case ncclFloat64:
      return store(value);
    default:
      std::memcpy(to, &integer, type.bytes);  // the low bytes come first
  }
}

using Bytes = std::vector<std::byte>;
/// `count` elements, each `value(index)`.
template <class Value>
Bytes make(const Type& type, std::size_t count, Value&& value) {
  Bytes bytes(count * type.bytes);
  for (std::size_t at = 0; at < count; ++at) {
    put(type, bytes.data() + at * type.bytes, value(at));
  }
  return bytes;
}

}  // namespace sprat::nccl_tests
