// Blocks: what caches keep of files, and which of them. Pure.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "io/formats/format.hpp"

namespace sprat::io {

/// The last block of a file is shorter.
inline constexpr std::uint64_t cache_block_bytes = std::uint64_t{1} << 20;
/// Neighbours are kept, and owned, together: as much as one request reads, so that a request has
/// one source as a rule and is not cut into pieces.
inline constexpr std::uint64_t blocks_kept_together = 4;

/// A file as it was indexed: another length or time is another key, so a file that has changed is
/// not found.
struct FileKey {
  std::uint64_t high = 0, low = 0;

  friend bool operator==(const FileKey&, const FileKey&) = default;
  friend auto operator<=>(const FileKey&, const FileKey&) = default;
};
/// `path` as the dataset has it: equal on all hosts that are to share blocks.
FileKey file_key(std::string_view path, const FileStamp& stamp);

struct BlockKey {
  FileKey file;
  std::uint64_t block = 0;  ///< Its index in the file.

  friend bool operator==(const BlockKey&, const BlockKey&) = default;
};

/// A file of the dataset, as caches know it.
struct CachedFile {
  FileKey key;
  std::uint64_t bytes = 0;
};

constexpr std::uint64_t block_count(std::uint64_t file_bytes) {
  return file_bytes / cache_block_bytes + (file_bytes % cache_block_bytes > 0 ? 1 : 0);
}
/// 0 for a block behind the file's end.
constexpr std::uint64_t bytes_of_block(std::uint64_t file_bytes, std::uint64_t block) {
  if (block >= block_count(file_bytes)) {
    return 0;
  }
  const std::uint64_t left = file_bytes - block * cache_block_bytes;
  return left < cache_block_bytes ? left : cache_block_bytes;
}

/// Equal for blocks that are kept together, the same on every machine.
std::uint64_t group_hash(const BlockKey& key);

/// Which blocks are kept: the share capacity / total of all of them, by their hash.
class KeepRule {
 public:
  /// Of `total` blocks there is room for `capacity`.
  KeepRule(std::uint64_t capacity, std::uint64_t total);
  bool keeps(const BlockKey& key) const;

 private:
  bool all_ = true;
  std::uint64_t limit_ = 0;  // hashes below it are kept
};

}  // namespace sprat::io
