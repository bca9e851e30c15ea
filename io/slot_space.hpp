// Which ranges of one address space are taken, so that slots of any size share a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace sprat::io {

/// Pure: it only counts.
class SlotSpace {
 public:
  /// No slot ends beyond `limit`.
  explicit SlotSpace(std::uint64_t limit) : limit_(limit) {}
  /// Where a slot of so many bytes begins; nullopt if there is no room for it now.
  std::optional<std::uint64_t> take(std::size_t bytes);
  void give(std::uint64_t offset, std::size_t bytes);

 private:
  std::uint64_t limit_;
  std::map<std::uint64_t, std::size_t> gaps_;  // free ranges below end_: offset, bytes
  std::uint64_t end_ = 0;                      // of the last slot
};

}  // namespace sprat::io
