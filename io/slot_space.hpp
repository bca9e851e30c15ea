// Which ranges of one address space are taken, so that slots of any size share a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

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
  using Gaps = std::map<std::uint64_t, std::size_t>;

  void add_gap(std::uint64_t offset, std::size_t bytes);
  void erase_gap(Gaps::const_iterator gap);

  std::uint64_t limit_;
  Gaps gaps_;  // free ranges below end_: offset, bytes
  std::set<std::pair<std::size_t, std::uint64_t>> by_size_;  // the same: bytes, offset
  std::uint64_t end_ = 0;                                    // of the last slot
};

}  // namespace sprat::io
