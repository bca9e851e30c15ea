// What a reduction means, one element at a time: the reference that kernels are held against.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "collectives/kernels/reduce.hpp"

namespace sprat::collectives::reduce_reference {

using Bytes = std::vector<std::byte>;

/// A float narrower than f32, which is what it is accumulated in.
template <class T>
constexpr bool is_narrow = !std::is_arithmetic_v<T>;
template <class T>
using Accumulator = std::conditional_t<is_narrow<T>, float, T>;

template <class T>
T narrow(float value) {
  if constexpr (std::is_same_v<T, float16>) {
    return to_float16(value);
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return to_bfloat16(value);
  } else if constexpr (std::is_same_v<T, float8_e4m3>) {
    return to_float8_e4m3(value);
  } else {
    return to_float8_e5m2(value);
  }
}

template <class T>
Accumulator<T> widen(T value) {
  if constexpr (is_narrow<T>) {
    return to_float(value);
  } else {
    return value;
  }
}

template <class T>
T combine(ReduceOp op, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Wide = std::uint64_t;
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::avg:
        return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
      case ReduceOp::prod:
        return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
      case ReduceOp::min:
        return a < b ? a : b;
      case ReduceOp::max:
        return a > b ? a : b;
      case ReduceOp::band:
        return static_cast<T>(a & b);
      case ReduceOp::bor:
        return static_cast<T>(a | b);
      case ReduceOp::bxor:
        return static_cast<T>(a ^ b);
      case ReduceOp::land:
        return static_cast<T>(a && b);
      case ReduceOp::lor:
        return static_cast<T>(a || b);
      case ReduceOp::premultiplied_sum:
      case ReduceOp::user:
        break;  // Not of integers here.
    }
  } else {
    const bool unordered = std::isnan(a) || std::isnan(b);
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::avg:
      case ReduceOp::premultiplied_sum:
        return a + b;
      case ReduceOp::prod:
        return a * b;
      case ReduceOp::min:
        if (unordered) {
          return std::numeric_limits<T>::quiet_NaN();
        }
        if (a == b) {
          return std::signbit(a) ? a : b;
        }
        return a < b ? a : b;
      case ReduceOp::max:
        if (unordered) {
          return std::numeric_limits<T>::quiet_NaN();
        }
        if (a == b) {
          return std::signbit(a) ? b : a;
        }
        return a > b ? a : b;
      case ReduceOp::band:
      case ReduceOp::bor:
      case ReduceOp::bxor:
      case ReduceOp::land:
      case ReduceOp::lor:
      case ReduceOp::user:
        break;  // Not of floats here.
    }
  }
  return T{};
}

template <class T>
T divide(T sum, int ranks) {
  if constexpr (std::is_integral_v<T>) {
    using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
    return static_cast<T>(static_cast<Wide>(sum) / static_cast<Wide>(ranks));
  } else {
    return sum / static_cast<T>(ranks);
  }
}

template <class T>
T one_nan(T value) {
  return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
}

/// The bytes of a complete result, rounded to T or, of a 16-bit T, kept in f32.
template <class T>
void write_complete(Accumulator<T> value, DType output, std::byte* to) {
  if constexpr (is_narrow<T>) {
    if (output == DType::f32) {
      const float kept = one_nan(value);
      std::memcpy(to, &kept, sizeof kept);
    } else {
      const T rounded = narrow<T>(value);
      std::memcpy(to, &rounded, sizeof rounded);
    }
  } else if constexpr (std::is_floating_point_v<T>) {
    const T kept = one_nan(value);
    std::memcpy(to, &kept, sizeof kept);
  } else {
    std::memcpy(to, &value, sizeof value);
  }
}

template <class T>
T multiplied(T value, double factor) {
  if constexpr (std::is_floating_point_v<T>) {
    return factor == 1 ? value : value * static_cast<T>(factor);
  } else {
    return value;
  }
}

/// A rank's element: of a boolean its truth, which any byte but 0 has.
template <class T>
Accumulator<T> contribution(const void* data, std::size_t i) {
  if constexpr (std::is_same_v<T, bool>) {
    return static_cast<const std::uint8_t*>(data)[i] != 0;
  } else {
    return widen(static_cast<const T*>(data)[i]);
  }
}

template <class T>
Accumulator<T> tree(const Arithmetic& arithmetic, std::span<const Term> terms, RankRange node,
                    std::size_t i) {
  for (const Term& term : terms) {
    if (!(term.covers == node)) {
      continue;
    }
    if (term.partial) {
      return contribution<Accumulator<T>>(term.data, i);
    }
    return contribution<T>(term.data, i);
  }
  int left = 1;
  while (2 * left < node.size()) {
    left *= 2;
  }
  if (terms.front().covers.first == node.first) {
    left = std::max(left, terms.front().covers.size());  // the partial that a chain begins with
  }
  const auto child = [&](RankRange half) {
    const Accumulator<T> value = tree<T>(arithmetic, terms, half, i);
    return half.size() == 1 ? multiplied(value, arithmetic.factor) : value;
  };
  const int middle = node.first + left;
  return combine(arithmetic.op, child({node.first, middle}), child({middle, node.last}));
}

/// A user's operation for tests: maps x -> a x + b modulo 2^16, a in the high half, one after the
/// other. It is associative, not commutative.
inline std::uint32_t composed(std::uint32_t first, std::uint32_t second) {
  const std::uint32_t a = (first >> 16) * (second >> 16);
  const std::uint32_t b = (second >> 16) * (first & 0xffff) + (second & 0xffff);
  return a << 16 | (b & 0xffff);
}

inline DType result_type(const Arithmetic& arithmetic) {
  return arithmetic.complete ? arithmetic.output : accumulator_of(arithmetic.input);
}

template <class T>
Bytes reference_of(const Arithmetic& arithmetic, std::span<const Term> terms, std::size_t count) {
  const std::size_t size = size_of(result_type(arithmetic));
  const RankRange all = {terms.front().covers.first, terms.back().covers.last};
  Bytes result(count * size);
  for (std::size_t i = 0; i < count; ++i) {
    Accumulator<T> value = tree<T>(arithmetic, terms, all, i);
    if (arithmetic.op == ReduceOp::land || arithmetic.op == ReduceOp::lor) {
      value = static_cast<Accumulator<T>>(value != 0);  // Of a single term, too.
    }
    if (arithmetic.complete) {
      if (all.size() == 1) {
        value = multiplied(value, arithmetic.factor);
      }
      if (arithmetic.op == ReduceOp::avg) {
        value = divide(value, arithmetic.ranks);
      }
      write_complete<T>(value, arithmetic.output, &result[i * size]);
    } else {
      std::memcpy(&result[i * size], &value, size);
    }
  }
  return result;
}

inline Bytes reference(const Arithmetic& arithmetic, std::span<const Term> terms,
                       std::size_t count) {
  switch (arithmetic.input) {
#define SPRAT_DTYPE(name, type, bytes) \
  case DType::name:                    \
    return reference_of<type>(arithmetic, terms, count);
#include "sprat/dtypes.def"
  }
  return {};
}

}  // namespace sprat::collectives::reduce_reference
