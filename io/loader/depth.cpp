// Doubling finds the depth in a few batches; a quarter less after a hundred full ones gives memory
// back without swinging: what a reader of uneven speed needs is found again at its next wait. Where
// storage was busy all the time until a wait, as it is before the first batch, a longer line in
// front of it would have brought nothing sooner, and new memory for that line costs time of its
// own.
#include "io/loader/depth.hpp"

#include <algorithm>
#include <utility>

namespace sprat::io {
namespace {

constexpr int full_before_shrinking = 100;

}  // namespace

ReadAhead::ReadAhead(std::uint64_t least, std::uint64_t most) noexcept
    : least_(std::min(least, most)), most_(most), window_(std::min(least, most)) {}

void ReadAhead::taken(bool was_ready, std::uint64_t ready_bytes) noexcept {
  if (!was_ready) {
    full_in_a_row_ = 0;
    if (std::exchange(held_back_, false)) {
      window_ = window_ > most_ / 2 ? most_ : window_ * 2;
    }
    return;
  }
  full_in_a_row_ = ready_bytes >= window_ - window_ / 4 ? full_in_a_row_ + 1 : 0;
  if (full_in_a_row_ == full_before_shrinking) {
    full_in_a_row_ = 0;
    window_ = std::max(least_, window_ - window_ / 4);
  }
}

}  // namespace sprat::io
