// Patterns of known results. Floats are chosen so that every partial result is exact.
#include "cli/bench/pattern.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace sprat::cli {
namespace {

enum class Kind { signed_integer, unsigned_integer, floating };

template <class T>
constexpr Kind kind_of_type() {
  if constexpr (std::is_integral_v<T>) {
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

/// splitmix64's finalizer: any bit of the input changes half the bits of the result.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

std::uint64_t hash(std::uint64_t rank, std::uint64_t index) {
  return mix(mix(rank + 1) + (index + 1) * 0x9e3779b97f4a7c15ULL);
}

std::int64_t modulo(std::uint64_t value, std::int64_t divisor) {
  return static_cast<std::int64_t>(value % static_cast<std::uint64_t>(divisor));
}

/// Bits of a value that binary16 holds exactly as a normal number or zero.
std::uint16_t half_bits(double exact) {
  if (exact == 0) {
    return 0;
  }
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(exact), &exponent);  // in [1/2, 1)
  const auto mantissa = static_cast<unsigned>((fraction * 2 - 1) * 1024);
  const auto biased = static_cast<unsigned>(exponent - 1 + 15);
  return static_cast<std::uint16_t>((exact < 0 ? 0x8000u : 0u) | biased << 10 | mantissa);
}

void encode_float(DType dtype, double exact, std::byte* to) {
  if (dtype == DType::f64) {
    std::memcpy(to, &exact, 8);
    return;
  }
  const auto narrow = static_cast<float>(exact);
  const auto bits = std::bit_cast<std::uint32_t>(narrow);
  if (dtype == DType::f32) {
    std::memcpy(to, &bits, 4);
    return;
  }
  const auto half = dtype == DType::f16 ? half_bits(exact) : static_cast<std::uint16_t>(bits >> 16);
  std::memcpy(to, &half, 2);
}

/// The low bytes, which is the value modulo 2^bits.
void encode_integer(std::size_t bytes, std::uint64_t value, std::byte* to) {
  static_assert(std::endian::native == std::endian::little);
  std::memcpy(to, &value, bytes);
}

/// Integers up to 16 that no more than 256 of which are added up; bfloat16 holds every sum.
std::int64_t summand(Kind kind, int ranks, int rank, std::size_t index) {
  const std::int64_t most = std::clamp(256 / ranks, 1, 16);
  if (rank >= 256) {
    return 0;
  }
  const auto h = hash(rank, index);
  return kind == Kind::unsigned_integer ? modulo(h, most + 1) : modulo(h, 2 * most + 1) - most;
}

/// Integers whose mean over the ranks is an integer: a base that all share plus pairs +d, -d.
std::int64_t averaged(int ranks, int rank, std::size_t index) {
  const std::int64_t base = modulo(hash(1'000'000, index), 16);
  const auto turn = (static_cast<std::size_t>(rank) + index) % static_cast<std::size_t>(ranks);
  if (ranks % 2 == 1 && turn + 1 == static_cast<std::size_t>(ranks)) {
    return base;
  }
  const std::int64_t d = 1 + modulo(hash(2'000'000 + turn / 2, index), 8);
  return turn % 2 == 0 ? base + d : base - d;
}

/// Powers of two, at most eight of them not one, so that no product leaves binary16's range.
double float_factor(int ranks, int rank, std::size_t index) {
  const auto h = hash(rank, index);
  const double sign = (h & 1) != 0 ? -1 : 1;
  const auto turn = (static_cast<std::size_t>(rank) + index) % static_cast<std::size_t>(ranks);
  return turn < 8 ? sign * std::ldexp(1.0, static_cast<int>(modulo(h >> 1, 3)) - 1) : sign;
}

std::int64_t integer_value(Kind kind, ReduceOp op, int ranks, int rank, std::size_t index) {
  if (op != ReduceOp::prod) {
    return summand(kind, ranks, rank, index);
  }
  const auto h = hash(rank, index);
  const std::int64_t magnitude = 1 + modulo(h >> 1, 3);
  return kind == Kind::signed_integer && (h & 1) != 0 ? -magnitude : magnitude;
}

double float_value(ReduceOp op, int ranks, int rank, std::size_t index) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::min:
    case ReduceOp::max:
      return static_cast<double>(summand(Kind::floating, ranks, rank, index));
    case ReduceOp::prod:
      return float_factor(ranks, rank, index);
    case ReduceOp::avg:
      return static_cast<double>(averaged(ranks, rank, index));
  }
  return 0;
}

/// One step of a reduction; integers in std::uint64_t wrap, and are compared as signed values.
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

std::uint64_t integer_result(DType dtype, ReduceOp op, int ranks, std::size_t index) {
  const Kind kind = kind_of(dtype);
  auto value = [&](int rank) { return integer_value(kind, op, ranks, rank, index); };
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
  return op == ReduceOp::avg ? integer_mean(kind, size_of(dtype), result, ranks) : result;
}

double float_result(ReduceOp op, int ranks, std::size_t index) {
  double result = float_value(op, ranks, 0, index);
  for (int rank = 1; rank < ranks; ++rank) {
    result = combine(op, result, float_value(op, ranks, rank, index));
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
      encode_float(dtype, float_value(op, ranks, rank, i), to);
    } else {
      encode_integer(size_of(dtype), integer_value(kind, op, ranks, rank, i), to);
    }
  });
}

Pattern reduction_of(DType dtype, ReduceOp op, int ranks) {
  return make(dtype, [&](std::size_t i, std::byte* to) {
    if (kind_of(dtype) == Kind::floating) {
      encode_float(dtype, float_result(op, ranks, i), to);
    } else {
      encode_integer(size_of(dtype), integer_result(dtype, op, ranks, i), to);
    }
  });
}

}  // namespace sprat::cli
