// Buffers that units borrow while they are full, with a count of the most ever held.
#pragma once

#include <cstddef>
#include <vector>

#include "sprat/buffer.hpp"

namespace sprat::fsdp {

/// Reuses memory that peers map: making and mapping it anew is slow. If at most K buffers of at
/// most B bytes are lent at a time, the pool never holds more than K * B bytes. One thread at a
/// time.
class BufferPool {
 public:
  /// The smallest free buffer of at least `bytes`. If none is, a new one takes the place of the
  /// largest free one. Its contents are left over from earlier use.
  Memory take(std::size_t bytes);
  void give(Memory buffer);

  /// Bytes lent and free.
  std::size_t held() const { return held_; }
  std::size_t high_water() const { return high_water_; }

 private:
  std::vector<Memory> free_;
  std::size_t held_ = 0, high_water_ = 0;
};

}  // namespace sprat::fsdp
