// Typed views of caller memory, and memory that peers on this host can map.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "sprat/export.hpp"

namespace sprat {

/// IEEE binary16 and bfloat16, as bits. Arithmetic is the library's: it widens, then rounds once.
struct float16 {
  std::uint16_t bits = 0;
};
/// The upper half of an f32, as bits.
struct bfloat16 {
  std::uint16_t bits = 0;
};
/// The 8-bit floats of the Open Compute Project, as bits. E4M3 has no infinities, and NaN only as
/// 0x7f and 0xff: its largest number is 448. E5M2 is binary16 less its low 8 bits.
struct float8_e4m3 {
  std::uint8_t bits = 0;
};
/// As bits; see float8_e4m3.
struct float8_e5m2 {
  std::uint8_t bits = 0;
};

/// Round to nearest even. What rounds past the largest number becomes infinity or, in E4M3, NaN.
/// Every NaN becomes the one quiet NaN (0x7e00, 0x7fc0, 0x7f, 0x7e).
SPRAT_API float16 to_float16(float value) noexcept;
SPRAT_API bfloat16 to_bfloat16(float value) noexcept;
SPRAT_API float8_e4m3 to_float8_e4m3(float value) noexcept;
SPRAT_API float8_e5m2 to_float8_e5m2(float value) noexcept;
SPRAT_API float to_float(float16 value) noexcept;
SPRAT_API float to_float(bfloat16 value) noexcept;
SPRAT_API float to_float(float8_e4m3 value) noexcept;
SPRAT_API float to_float(float8_e5m2 value) noexcept;

enum class DType : std::uint8_t {
#define SPRAT_DTYPE(name, type, bytes) name,
#include "sprat/dtypes.def"
};

/// "f32" and so on.
SPRAT_API const char* name(DType dtype) noexcept;
/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) noexcept {
  switch (dtype) {
#define SPRAT_DTYPE(name, type, bytes) \
  case DType::name:                    \
    return bytes;
#include "sprat/dtypes.def"
  }
  return 0;
}
/// Every dtype, in the order of dtypes.def.
SPRAT_API std::span<const DType> all_dtypes() noexcept;

template <class T>
struct dtype_of;
#define SPRAT_DTYPE(name, type, bytes)          \
  template <>                                   \
  struct dtype_of<type> {                       \
    static constexpr DType value = DType::name; \
  };
#include "sprat/dtypes.def"

/// A borrowed, writable array of `count` elements.
struct Elements {
  void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::f32;
  std::size_t bytes() const noexcept { return count * size_of(dtype); }
};

/// A borrowed, read-only array of `count` elements.
struct ConstElements {
  const void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::f32;
  ConstElements() = default;
  ConstElements(const void* pointer, std::size_t elements, DType type)
      : data(pointer), count(elements), dtype(type) {}
  ConstElements(const Elements& other)  // NOLINT: a writable view is a readable one
      : data(other.data), count(other.count), dtype(other.dtype) {}
  std::size_t bytes() const noexcept { return count * size_of(dtype); }
};

/// A typed view of anything contiguous: elements(vector), elements(span), elements(array).
template <class Range>
auto elements(Range&& range) {
  std::span view(range);
  using T = typename decltype(view)::element_type;
  constexpr DType dtype = dtype_of<std::remove_const_t<T>>::value;
  if constexpr (std::is_const_v<T>) {
    return ConstElements(view.data(), view.size(), dtype);
  } else {
    return Elements{view.data(), view.size(), dtype};
  }
}

/// Zeroed memory that ranks on this host read in place, without a copy. Page aligned; from 2 MiB on
/// all of it is there at once, on huge pages where Linux has some (6.1 and later). Owned.
/// Any memory may be handed to a collective; this kind is faster.
class SPRAT_API Memory {
 public:
  Memory() = default;
  /// Throws Error{unavailable} if the machine has no such memory left.
  explicit Memory(std::size_t bytes);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;

  void* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }
  template <class T>
  std::span<T> as() const noexcept {
    return {static_cast<T*>(data_), bytes_ / sizeof(T)};
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// `count` zeroed elements of T in memory that peers can map.
template <class T>
Memory allocate(std::size_t count) {
  return Memory(count * sizeof(T));
}

}  // namespace sprat
