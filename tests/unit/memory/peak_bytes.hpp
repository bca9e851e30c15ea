// What plans of slots are held against.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>

#include "memory/buffers.hpp"

namespace sprat::memory {

/// The most bytes that are needed at one moment; no plan of slots takes less.
inline std::size_t peak_bytes(std::span<const Buffer> buffers) {
  // What begins at a moment is not held beside what ended before it, so both are one change.
  struct Change {
    std::size_t begins = 0, ends = 0;
  };
  std::map<std::size_t, Change> changes;
  for (const Buffer& buffer : buffers) {
    for (const Life& life : buffer.lives) {
      changes[life.from].begins += buffer.bytes;
      changes[life.to].ends += buffer.bytes;
    }
  }
  std::size_t now = 0, most = 0;
  for (const auto& [moment, change] : changes) {
    now = now + change.begins - change.ends;
    most = std::max(most, now);
  }
  return most;
}

}  // namespace sprat::memory
