// Words in pinned memory that streams wait for.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/slab.hpp"
#include "sprat/device.hpp"

namespace sprat::device {

/// Whether a word that counts up has reached `value`, as streams see it: cyclic.
inline bool reached(std::uint32_t* word, std::uint32_t value) noexcept {
  // Acquire: what was written before the word is seen by who sees the word.
  const std::uint32_t now = std::atomic_ref(*word).load(std::memory_order_acquire);
  return static_cast<std::int32_t>(now - value) >= 0;
}

/// Pages of words of one device, each for one lane at a time. A stream may come to wait for a word
/// long after the operation, and the lane, have ended. So pages stay pinned as long as the process
/// lives, and words go on counting from lane to lane: whoever waits for an old value goes on.
class WordPage {
 public:
  static constexpr std::size_t words = 16384;

  /// A page that no lane has, else a new one.
  static std::unique_ptr<WordPage> take(const std::shared_ptr<Device>& device);
  /// Keeps it for another lane.
  static void give(std::unique_ptr<WordPage> page);

  explicit WordPage(const std::shared_ptr<Device>& device)
      : device_(device), memory_(*device, words * sizeof(std::uint32_t)) {}
  std::uint32_t* word(std::size_t index) const noexcept {
    return reinterpret_cast<std::uint32_t*>(memory_.data()) + index;
  }

 private:
  std::shared_ptr<Device> device_;  ///< Shared: unpins when the process ends, after the lanes.
  PinnedMemory memory_;
};

}  // namespace sprat::device
