// The floating-point mode that reductions run in, whatever the calling thread has set.
#pragma once

#include <cstdint>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace sprat::collectives {

/// While one lives, this thread rounds to nearest even and keeps denormals, so that a result does
/// not depend on which thread happens to compute it. The thread's own mode returns afterwards.
class PlainArithmetic {
 public:
  PlainArithmetic() : saved_(read()) {
    if (saved_ & changes_results) [[unlikely]] {
      write(saved_ & ~changes_results);
    }
  }
  ~PlainArithmetic() {
    if (saved_ & changes_results) [[unlikely]] {
      write(saved_);
    }
  }
  PlainArithmetic(const PlainArithmetic&) = delete;
  PlainArithmetic& operator=(const PlainArithmetic&) = delete;

 private:
#if defined(__SSE2__)
  using Mode = std::uint32_t;
  /// MXCSR: flush to zero, rounding control, denormals are zero.
  static constexpr Mode changes_results = 0x8000 | 0x6000 | 0x0040;
  static Mode read() { return _mm_getcsr(); }
  static void write(Mode mode) { _mm_setcsr(mode); }
#elif defined(__aarch64__)
  using Mode = std::uint64_t;
  /// FPCR: default NaN, flush to zero, rounding mode, flush to zero of binary16.
  static constexpr Mode changes_results = 1u << 25 | 1u << 24 | 3u << 22 | 1u << 19;
  static Mode read() {
    Mode mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void write(Mode mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }
#else
  using Mode = std::uint32_t;
  static constexpr Mode changes_results = 0;
  static Mode read() { return 0; }
  static void write(Mode) {}
#endif

  Mode saved_;
};

}  // namespace sprat::collectives
