// What a reduction means, one element at a time: the reference that kernels are held against.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "collectives/reduce.hpp"

namespace sprat::collectives::reduce_reference {

using Bytes = std::vector<std::byte>;

template <class T>
constexpr bool is_half = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;
template <class T>
using Accumulator = std::conditional_t<is_half<T>, float, T>;

template <class T>
Accumulator<T> widen(T value) {
  if constexpr (is_half<T>) {
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
    }
  } else {
    const bool unordered = std::isnan(a) || std::isnan(b);
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::avg:
        return a + b;
      case ReduceOp::prod:
        return a * b;
      case ReduceOp::min:
        if (unordered) return std::numeric_limits<T>::quiet_NaN();
        if (a == b) return std::signbit(a) ? a : b;
        return a < b ? a : b;
      case ReduceOp::max:
        if (unordered) return std::numeric_limits<T>::quiet_NaN();
        if (a == b) return std::signbit(a) ? b : a;
        return a > b ? a : b;
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
  if constexpr (is_half<T>) {
    if (output == DType::f32) {
      const float kept = one_nan(value);
      std::memcpy(to, &kept, sizeof kept);
    } else if constexpr (std::is_same_v<T, float16>) {
      const float16 rounded = to_float16(value);
      std::memcpy(to, &rounded, sizeof rounded);
    } else {
      const bfloat16 rounded = to_bfloat16(value);
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
Accumulator<T> tree(ReduceOp op, std::span<const Term> terms, RankRange node, std::size_t i) {
  for (const Term& term : terms) {
    if (!(term.covers == node)) continue;
    if (term.partial) return static_cast<const Accumulator<T>*>(term.data)[i];
    return widen(static_cast<const T*>(term.data)[i]);
  }
  int left = 1;
  while (2 * left < node.size()) left *= 2;
  const int middle = node.first + left;
  return combine(op, tree<T>(op, terms, {node.first, middle}, i),
                 tree<T>(op, terms, {middle, node.last}, i));
}

inline DType result_type(const Reduction& reduction) {
  return reduction.complete ? reduction.output : accumulator_of(reduction.input);
}

template <class T>
Bytes reference_of(const Reduction& reduction, std::span<const Term> terms, std::size_t count) {
  const std::size_t size = size_of(result_type(reduction));
  const RankRange all = {terms.front().covers.first, terms.back().covers.last};
  Bytes result(count * size);
  for (std::size_t i = 0; i < count; ++i) {
    Accumulator<T> value = tree<T>(reduction.op, terms, all, i);
    if (reduction.complete) {
      if (reduction.op == ReduceOp::avg) value = divide(value, reduction.ranks);
      write_complete<T>(value, reduction.output, &result[i * size]);
    } else {
      std::memcpy(&result[i * size], &value, size);
    }
  }
  return result;
}

inline Bytes reference(const Reduction& reduction, std::span<const Term> terms, std::size_t count) {
  switch (reduction.input) {
#define SPRAT_DTYPE(name, type, bytes) \
  case DType::name:                    \
    return reference_of<type>(reduction, terms, count);
#include "sprat/dtypes.def"
  }
  return {};
}

}  // namespace sprat::collectives::reduce_reference
