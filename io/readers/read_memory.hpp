// Where reads write to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace sprat::io {

/// One thread at a time.
class ReadMemory {
 public:
  virtual ~ReadMemory() = default;
  /// Begins and ends at whole pages, `bytes` and a little more. Empty: no room now; give some back.
  virtual std::span<std::byte> take(std::size_t bytes) = 0;
  /// What take() gave, as a whole.
  virtual void give(std::span<std::byte> memory) = 0;
};

/// Up to `bytes` at once, from one mapping that is twice as long, so that there is room between
/// slots of all sizes. Pages cost memory from their first use on. Throws Error{unavailable}.
std::unique_ptr<ReadMemory> plain_read_memory(std::uint64_t bytes);

}  // namespace sprat::io
