// Hashes that are the same on every machine: of bytes that are compared, and of counters that make
// random numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace sprat {

/// FNV-1a of no bytes.
inline constexpr std::uint64_t fnv1a_begin = 0xcbf29ce484222325;

/// FNV-1a of 64 bits; of what comes in pieces, if `sum` is that of the pieces before.
inline std::uint64_t fnv1a(std::span<const std::byte> bytes, std::uint64_t sum = fnv1a_begin) {
  for (const std::byte byte : bytes) {
    sum = (sum ^ static_cast<std::uint8_t>(byte)) * 0x100000001b3;
  }
  return sum;
}
inline std::uint64_t fnv1a(std::string_view text) { return fnv1a(std::as_bytes(std::span(text))); }

/// What the states of SplitMix64 are apart: 2^64 over the golden ratio, odd.
inline constexpr std::uint64_t golden_step = 0x9e3779b97f4a7c15;

/// The finaliser of SplitMix64 (Steele, Lea and Flood 2014): every bit of the result depends on
/// every bit of `value`; 0 stays 0.
constexpr std::uint64_t mix_bits(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace sprat
