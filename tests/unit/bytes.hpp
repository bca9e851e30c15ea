// Bytes that tests send and compare. A sanitizer looks at each turn of a loop over them, and once
// at a call of memcmp.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace sprat {

/// So many bytes, others for each seed, the same in every process.
inline std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> out(bytes);
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (std::size_t at = 0; at < bytes; at += sizeof state) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const std::uint64_t mixed = (state ^ state >> 29) * 0xbf58476d1ce4e5b9u;
    std::memcpy(out.data() + at, &mixed, std::min(sizeof mixed, bytes - at));
  }
  return out;
}

/// Whether two are the same; says where they part.
inline testing::AssertionResult same_bytes(std::span<const std::byte> got,
                                           std::span<const std::byte> expected) {
  const std::size_t bytes = std::min(got.size(), expected.size());
  if (bytes > 0 && std::memcmp(got.data(), expected.data(), bytes) != 0) {
    const auto at =
        static_cast<std::size_t>(std::ranges::mismatch(got, expected).in1 - got.begin());
    return testing::AssertionFailure()
           << "byte " << at << " of " << got.size() << " is " << std::to_integer<int>(got[at])
           << " instead of " << std::to_integer<int>(expected[at]);
  }
  if (got.size() != expected.size()) {
    return testing::AssertionFailure()
           << got.size() << " bytes instead of " << expected.size() << " that begin so";
  }
  return testing::AssertionSuccess();
}

}  // namespace sprat
