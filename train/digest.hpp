// FNV-1a of 64 bits: what stands for bytes that ranks compare.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sprat::train {

inline std::uint64_t fnv1a(std::span<const std::byte> bytes) {
  std::uint64_t sum = 0xcbf29ce484222325;
  for (const std::byte byte : bytes) {
    sum = (sum ^ static_cast<std::uint8_t>(byte)) * 0x100000001b3;
  }
  return sum;
}

}  // namespace sprat::train
