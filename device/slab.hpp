// Pinned host memory of a lane: pieces that are taken and given back in any order.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "sprat/buffer.hpp"
#include "sprat/device.hpp"

namespace sprat::device {

/// Which pages of a slab are taken: first fit, over a list of gaps that is kept in order. Allocates
/// nothing once as many gaps were there before.
class PageMap {
 public:
  explicit PageMap(std::size_t pages);
  /// The first page of `pages` free ones in a row; nothing if there are none. Not 0.
  std::optional<std::size_t> take(std::size_t pages);
  /// What take() gave.
  void give(std::size_t first, std::size_t pages);
  std::size_t free() const noexcept;

 private:
  struct Gap {
    std::size_t first = 0, pages = 0;
  };
  std::vector<Gap> gaps_;  ///< In order, never adjacent, never empty.
};

/// Pinned memory, unpinned before it is unmapped.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(Device& device, std::size_t bytes);
  ~PinnedMemory();
  PinnedMemory(PinnedMemory&& other) noexcept;
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;

  std::byte* data() const noexcept { return static_cast<std::byte*>(memory_.data()); }
  std::size_t bytes() const noexcept { return memory_.bytes(); }

 private:
  Device* device_ = nullptr;  ///< Null: nothing is pinned.
  Memory memory_;
};

/// One thread.
class Slab {
 public:
  /// Pins `bytes` at once: later it would make the caller of an operation wait for the device.
  Slab(Device& device, std::size_t bytes);
  /// Aligned memory, or null if there is none free now. What is larger than the slab is in a
  /// piece of its own, of which there is one; it is kept, and grows, which may take milliseconds.
  std::byte* take(std::size_t bytes);
  void give(std::byte* piece, std::size_t bytes) noexcept;

 private:
  Device& device_;
  PinnedMemory memory_;
  PageMap pages_;
  PinnedMemory large_;
  bool large_is_taken_ = false;
};

}  // namespace sprat::device
