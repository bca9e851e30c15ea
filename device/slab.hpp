// Pinned host memory of a lane, taken and given back in the order of its flights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "sprat/buffer.hpp"
#include "sprat/device.hpp"

namespace sprat::device {

/// Memory of flights, which end in their order, around a circle. Allocates nothing once as many
/// pieces were taken before. One thread.
class Ring {
 public:
  explicit Ring(std::size_t bytes) : bytes_(bytes) { pieces_.reserve(256); }

  struct Place {
    std::size_t offset = 0;
    /// How many flights must have ended before this memory is free; nothing if it is.
    std::optional<std::uint32_t> free_behind;
  };
  /// Memory for flight `number`; numbers follow each other, and wrap. `ended`: how many have ended.
  /// Not more than all there is.
  Place take(std::size_t bytes, std::uint32_t number, std::uint32_t ended);
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  struct Piece {
    std::size_t begin = 0, end = 0;
    std::uint32_t number = 0;
  };
  std::size_t bytes_, next_ = 0;
  std::vector<Piece> pieces_;  ///< In the order of their flights.
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

/// Where flights have their memory. One thread at a time.
class Slab {
 public:
  /// Pins `bytes` at once: later it would make the caller of an operation wait for the device.
  Slab(Device& device, std::size_t bytes);
  struct Place {
    std::byte* memory = nullptr;
    std::optional<std::uint32_t> free_behind;  ///< As Ring's.
  };
  /// Aligned memory for a flight. What is larger than the slab makes it grow, once for all, which
  /// may take milliseconds; the memory that it had stays until the end, for flights are in it.
  Place take(std::size_t bytes, std::uint32_t number, std::uint32_t ended);

 private:
  Device& device_;
  std::vector<PinnedMemory> memories_;  ///< The last one is that of the ring.
  Ring ring_;
};

}  // namespace sprat::device
