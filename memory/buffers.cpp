#include "memory/buffers.hpp"

#include <algorithm>
#include <map>

namespace sprat::memory {

bool overlap(const Lives& a, const Lives& b) {
  auto one = a.begin();
  auto other = b.begin();
  while (one != a.end() && other != b.end()) {
    if (one->to <= other->from) {
      ++one;
    } else if (other->to <= one->from) {
      ++other;
    } else {
      return true;
    }
  }
  return false;
}

std::size_t peak_bytes(std::span<const Buffer> buffers) {
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

void LifeRecord::meet(const std::vector<bool>& alive) {
  lives_.resize(std::max(lives_.size(), alive.size()));
  for (std::size_t buffer = 0; buffer < alive.size(); ++buffer) {
    Lives& lives = lives_[buffer];
    if (!alive[buffer]) {
      continue;
    }
    if (!lives.empty() && lives.back().to == moment_) {
      ++lives.back().to;
    } else {
      lives.push_back({moment_, moment_ + 1});
    }
  }
  ++moment_;
}

}  // namespace sprat::memory
