// Memory of what is read, used again: pages that are new cost more than the bytes that come into
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>

namespace sprat::io {

/// Page aligned. The memory goes back to its pool with the last reference.
using PooledMemory = std::shared_ptr<std::span<std::byte>>;

/// Any thread, several at once.
class MemoryPool final : public std::enable_shared_from_this<MemoryPool> {
 public:
  /// Keeps free memory as long as all of it together is at most `most_bytes`.
  static std::shared_ptr<MemoryPool> make(std::uint64_t most_bytes);
  ~MemoryPool();

  /// Throws Error{unavailable} if the system has no more. Contents are anything.
  PooledMemory take(std::uint64_t bytes);
  /// Taken, and free but kept.
  std::uint64_t bytes() const;
  std::uint64_t taken_bytes() const;
  /// What taking so many takes.
  static std::uint64_t room_of(std::uint64_t bytes);

 private:
  explicit MemoryPool(std::uint64_t most_bytes) : most_bytes_(most_bytes) {}
  void give_back(std::byte* memory, std::uint64_t room) noexcept;
  void shrink_to(std::uint64_t bytes) noexcept;

  const std::uint64_t most_bytes_;
  mutable std::mutex mutex_;                       // guards what follows
  std::multimap<std::uint64_t, std::byte*> free_;  // by room
  std::uint64_t free_bytes_ = 0, taken_bytes_ = 0;
};

}  // namespace sprat::io
