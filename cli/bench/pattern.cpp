// Patterns of known results. Floats are chosen so that every partial result is exact in f32.
#include "cli/bench/pattern.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "comm/base/hash.hpp"

namespace sprat::cli {
namespace {

enum class Kind { signed_integer, unsigned_integer, boolean, floating };

template <class T>
constexpr Kind kind_of_type() {
  if constexpr (std::is_same_v<T, bool>) {
    return Kind::boolean;
  } else if constexpr (std::is_integral_v<T>) {
    return std::is_signed_v<T> ? Kind::signed_integer : Kind::unsigned_integer;
  } else {
    return Kind::floating;
  }
}

Kind kind_of(DType dtype) {
  switch (dtype) {
#define SPRAT_DTYPE(name, type, bytes) \
  case DType::name:                    \
    return kind_of_type<type>();
#include "sprat/dtypes.def"
  }
  return Kind::floating;
}

std::uint64_t hash(std::uint64_t rank, std::uint64_t index) {
  return mix_bits(mix_bits(rank + 1) + (index + 1) * golden_step);
}

std::int64_t modulo(std::uint64_t value, std::int64_t divisor) {
  return static_cast<std::int64_t>(value % static_cast<std::uint64_t>(divisor));
}

/// Rounded once, to nearest even: `exact` is what the reduction has before it rounds.
void encode_float(DType dtype, double exact, std::byte* to) {
  const auto narrow = static_cast<float>(exact);
  const auto write = [to](auto value) { std::memcpy(to, &value, sizeof value); };
  switch (dtype) {
    case DType::f64:
      return write(exact);
    case DType::f32:
      return write(narrow);
    case DType::f16:
      return write(to_float16(narrow));
    case DType::bf16:
      return write(to_bfloat16(narrow));
    case DType::f8e4m3:
      return write(to_float8_e4m3(narrow));
    case DType::f8e5m2:
      return write(to_float8_e5m2(narrow));
    case DType::i8:
    case DType::u8:
    case DType::i16:
    case DType::u16:
    case DType::i32:
    case DType::u32:
    case DType::i64:
    case DType::u64:
    case DType::boolean:
      return;  // encode_integer() writes these.
  }
}

/// The low bytes, which is the value modulo 2^bits.
void encode_integer(std::size_t bytes, std::uint64_t value, std::byte* to) {
  static_assert(std::endian::native == std::endian::little);
  std::memcpy(to, &value, bytes);
}

/// The largest integer up to which a format holds them all, and 16 at most.
std::int64_t largest_summand(DType dtype) { return dtype == DType::f8e5m2 ? 8 : 16; }

/// Integers that no more than 256 of which are added up; bfloat16 holds every sum.
std::int64_t summand(DType dtype, int ranks, int rank, std::size_t index) {
  const std::int64_t most = std::clamp<std::int64_t>(256 / ranks, 1, largest_summand(dtype));
  if (rank >= 256) {
    return 0;
  }
  const auto h = hash(rank, index);
  return kind_of(dtype) == Kind::unsigned_integer ? modulo(h, most + 1)
                                                  : modulo(h, 2 * most + 1) - most;
}

/// Integers whose mean over the ranks is an integer: a base that all share plus pairs +d, -d.
std::int64_t averaged(DType dtype, int ranks, int rank, std::size_t index) {
  const std::int64_t half = size_of(dtype) == 1 ? 4 : 8;  // 8-bit floats hold integers up to 8.
  const std::int64_t base = modulo(hash(1'000'000, index), size_of(dtype) == 1 ? 4 : 16);
  const auto turn = (static_cast<std::size_t>(rank) + index) % static_cast<std::size_t>(ranks);
  if (ranks % 2 == 1 && turn + 1 == static_cast<std::size_t>(ranks)) {
    return base;
  }
  const std::int64_t d = 1 + modulo(hash(2'000'000 + turn / 2, index), half);
  return turn % 2 == 0 ? base + d : base - d;
}

/// Powers of two, at most eight of them not one, so that no product leaves binary16's range.
double float_factor(int ranks, int rank, std::size_t index) {
  const auto h = hash(rank, index);
  const double sign = (h & 1) != 0 ? -1 : 1;
  const auto turn = (static_cast<std::size_t>(rank) + index) % static_cast<std::size_t>(ranks);
  return turn < 8 ? sign * std::ldexp(1.0, static_cast<int>(modulo(h >> 1, 3)) - 1) : sign;
}

/// One zero makes the result zero.
bool decides_by_zero(ReduceOp op) {
  return op == ReduceOp::land || op == ReduceOp::band || op == ReduceOp::min ||
         op == ReduceOp::prod;
}

template <class T>
T combine_bits(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::band:
      return a & b;
    case ReduceOp::bor:
      return a | b;
    case ReduceOp::bxor:
      return a ^ b;
    case ReduceOp::land:
      return a != 0 && b != 0;
    case ReduceOp::lor:
      return a != 0 || b != 0;
    case ReduceOp::sum:
    case ReduceOp::prod:
    case ReduceOp::min:
    case ReduceOp::max:
    case ReduceOp::avg:
    case ReduceOp::premultiplied_sum:
    case ReduceOp::user:
      break;  // combine() knows these.
  }
  return a;
}

/// Zero or not: what decides land and lor is rare, so that both results occur at any rank count.
std::int64_t truth(ReduceOp op, int ranks, int rank, std::size_t index) {
  const auto h = hash(rank, index);
  const bool rare = modulo(h, ranks + 1) == 0;
  const bool is_true = op == ReduceOp::bxor ? (h & 1) != 0 : rare != decides_by_zero(op);
  return is_true ? 1 + modulo(h >> 1, 127) : 0;
}

std::int64_t integer_value(DType dtype, ReduceOp op, int ranks, int rank, std::size_t index) {
  const auto h = hash(rank, index);
  if (kind_of(dtype) == Kind::boolean) {
    return truth(op, ranks, rank, index);
  }
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
    case ReduceOp::min:
    case ReduceOp::max:
      return summand(dtype, ranks, rank, index);
    case ReduceOp::prod: {
      const std::int64_t magnitude = 1 + modulo(h >> 1, 3);
      return kind_of(dtype) == Kind::signed_integer && (h & 1) != 0 ? -magnitude : magnitude;
    }
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
      return static_cast<std::int64_t>(h);
    case ReduceOp::land:
    case ReduceOp::lor:
      return truth(op, ranks, rank, index);
    case ReduceOp::premultiplied_sum:
    case ReduceOp::user:
      return 0;  // Not benched.
  }
  return 0;
}

double float_value(DType dtype, ReduceOp op, int ranks, int rank, std::size_t index) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::min:
    case ReduceOp::max:
      return static_cast<double>(summand(dtype, ranks, rank, index));
    case ReduceOp::prod:
      return float_factor(ranks, rank, index);
    case ReduceOp::avg:
      return static_cast<double>(averaged(dtype, ranks, rank, index));
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
    case ReduceOp::land:
    case ReduceOp::lor:
    case ReduceOp::premultiplied_sum:
    case ReduceOp::user:
      return 0;  // Not of floats, or not benched.
  }
  return 0;
}

/// One step of a reduction of numbers; integers in std::uint64_t wrap, and are compared as signed
/// values.
template <class T>
T combine(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return a + b;
    case ReduceOp::prod:
      return a * b;
    case ReduceOp::min:
      return static_cast<double>(b) < static_cast<double>(a) ? b : a;
    case ReduceOp::max:
      return static_cast<double>(a) < static_cast<double>(b) ? b : a;
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
    case ReduceOp::land:
    case ReduceOp::lor:
      if constexpr (std::is_integral_v<T>) {
        return combine_bits(op, a, b);
      }
      break;
    case ReduceOp::premultiplied_sum:
    case ReduceOp::user:
      break;
  }
  return a;
}

/// `wrapped` modulo 2^(8 bytes), read as the dtype reads it, divided and truncated.
std::uint64_t integer_mean(Kind kind, std::size_t bytes, std::uint64_t wrapped, int ranks) {
  const auto unused = static_cast<int>(64 - 8 * bytes);
  const std::uint64_t top = wrapped << unused;
  if (kind == Kind::unsigned_integer) {
    return (top >> unused) / static_cast<std::uint64_t>(ranks);
  }
  return static_cast<std::uint64_t>((static_cast<std::int64_t>(top) >> unused) / ranks);
}

/// Parity for bxor, else whether any or all are true.
std::uint64_t boolean_result(ReduceOp op, int ranks, std::size_t index) {
  int trues = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    trues += truth(op, ranks, rank, index) != 0 ? 1 : 0;
  }
  if (op == ReduceOp::bxor) {
    return trues % 2;
  }
  return decides_by_zero(op) ? trues == ranks : trues > 0;
}

std::uint64_t integer_result(DType dtype, ReduceOp op, int ranks, std::size_t index) {
  const Kind kind = kind_of(dtype);
  if (kind == Kind::boolean) {
    return boolean_result(op, ranks, index);
  }
  auto value = [&](int rank) { return integer_value(dtype, op, ranks, rank, index); };
  if (op == ReduceOp::min || op == ReduceOp::max) {
    std::int64_t best = value(0);
    for (int rank = 1; rank < ranks; ++rank) {
      best = combine(op, best, value(rank));
    }
    return static_cast<std::uint64_t>(best);
  }
  auto result = static_cast<std::uint64_t>(value(0));
  for (int rank = 1; rank < ranks; ++rank) {
    result = combine(op, result, static_cast<std::uint64_t>(value(rank)));
  }
  if (op == ReduceOp::land || op == ReduceOp::lor) {
    return result != 0;  // Of one rank, too.
  }
  return op == ReduceOp::avg ? integer_mean(kind, size_of(dtype), result, ranks) : result;
}

double float_result(DType dtype, ReduceOp op, int ranks, std::size_t index) {
  double result = float_value(dtype, op, ranks, 0, index);
  for (int rank = 1; rank < ranks; ++rank) {
    result = combine(op, result, float_value(dtype, op, ranks, rank, index));
  }
  return op == ReduceOp::avg ? result / ranks : result;
}

/// A pattern with `encode(index, to)` for each element.
template <class Encode>
Pattern make(DType dtype, Encode&& encode) {
  const std::size_t bytes = size_of(dtype);
  std::vector<std::byte> data(Pattern::period * bytes);
  for (std::size_t i = 0; i < Pattern::period; ++i) {
    encode(i, data.data() + i * bytes);
  }
  return {std::move(data), bytes};
}

}  // namespace

Pattern::Pattern(std::vector<std::byte> bytes, std::size_t element_bytes)
    : bytes_(std::move(bytes)), element_bytes_(element_bytes) {}

void Pattern::fill(std::byte* to, std::size_t first, std::size_t count) const {
  for (std::size_t at = first % period; count > 0; at = 0) {
    const std::size_t run = std::min(count, period - at);
    std::memcpy(to, bytes_.data() + at * element_bytes_, run * element_bytes_);
    to += run * element_bytes_;
    count -= run;
  }
}

std::uint64_t Pattern::wrong(const std::byte* data, std::size_t first, std::size_t count) const {
  std::uint64_t differing = 0;
  for (std::size_t at = first % period; count > 0; at = 0) {
    const std::size_t run = std::min(count, period - at);
    const std::byte* expected = bytes_.data() + at * element_bytes_;
    if (std::memcmp(data, expected, run * element_bytes_) != 0) {
      for (std::size_t i = 0; i < run * element_bytes_; i += element_bytes_) {
        differing += std::memcmp(data + i, expected + i, element_bytes_) != 0 ? 1 : 0;
      }
    }
    data += run * element_bytes_;
    count -= run;
  }
  return differing;
}

Pattern bits_of(DType dtype, int rank) {
  return make(dtype, [&](std::size_t i, std::byte* to) {
    encode_integer(size_of(dtype), hash(3'000'000 + rank, i), to);
  });
}

Pattern contribution_of(DType dtype, ReduceOp op, int ranks, int rank) {
  const Kind kind = kind_of(dtype);
  return make(dtype, [&](std::size_t i, std::byte* to) {
    if (kind == Kind::floating) {
      encode_float(dtype, float_value(dtype, op, ranks, rank, i), to);
    } else {
      encode_integer(size_of(dtype), integer_value(dtype, op, ranks, rank, i), to);
    }
  });
}

Pattern reduction_of(DType dtype, ReduceOp op, int ranks) {
  return make(dtype, [&](std::size_t i, std::byte* to) {
    if (kind_of(dtype) == Kind::floating) {
      encode_float(dtype, float_result(dtype, op, ranks, i), to);
    } else {
      encode_integer(size_of(dtype), integer_result(dtype, op, ranks, i), to);
    }
  });
}

}  // namespace sprat::cli
