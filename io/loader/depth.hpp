// How far ahead of its reader a loader reads.
#pragma once

#include <cstdint>

namespace sprat::io {

/// Pure: a window in bytes. It doubles when the reader of batches has to wait for bytes that the
/// window kept from being asked for, and shrinks while batches lie ready and nobody takes them. One
/// thread at a time.
class ReadAhead {
 public:
  /// least: two batches, or the budget if that is less.
  ReadAhead(std::uint64_t least, std::uint64_t most) noexcept;

  /// Storage could have had more to do, but for the window.
  void held_back() noexcept { held_back_ = true; }
  /// A batch was asked for: whether it was there, and what of the window lay ready behind it.
  void taken(bool was_ready, std::uint64_t ready_bytes) noexcept;
  /// Bytes that may be asked for and not yet taken.
  std::uint64_t bytes() const noexcept { return window_; }

 private:
  std::uint64_t least_, most_, window_;
  int full_in_a_row_ = 0;
  bool held_back_ = false;  // since the last wait
};

}  // namespace sprat::io
