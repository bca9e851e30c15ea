#include "memory/buffers.hpp"

#include <algorithm>

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
