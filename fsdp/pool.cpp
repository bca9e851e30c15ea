// The buffer pool: best fit, and a replacement of what is too small.
#include "fsdp/pool.hpp"

#include <algorithm>
#include <utility>

namespace sprat::fsdp {

Memory BufferPool::take(std::size_t bytes) {
  const auto smaller = [](const Memory& a, const Memory& b) { return a.bytes() < b.bytes(); };
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->bytes() >= bytes && (best == free_.end() || smaller(*it, *best))) {
      best = it;
    }
  }
  if (best != free_.end()) {
    Memory buffer = std::move(*best);
    free_.erase(best);
    return buffer;
  }
  if (!free_.empty()) {
    // Keeps the number of buffers at the most ever lent; each replacement grows one, so this ends.
    const auto largest = std::max_element(free_.begin(), free_.end(), smaller);
    held_ -= largest->bytes();
    free_.erase(largest);
  }
  Memory buffer(bytes);
  held_ += buffer.bytes();
  high_water_ = std::max(high_water_, held_);
  return buffer;
}

void BufferPool::give(Memory buffer) { free_.push_back(std::move(buffer)); }

}  // namespace sprat::fsdp
