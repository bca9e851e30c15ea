// Reading files whose length and checksums are known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/base/owned_descriptor.hpp"
#include "io/durable.hpp"

namespace sprat::io {

/// A file open for reading. One thread at a time.
class ReadFile {
 public:
  /// Throws Error{unavailable} naming the path, as all of its calls do.
  explicit ReadFile(std::string path);

  const std::string& path() const { return path_; }
  std::uint64_t bytes() const { return bytes_; }
  /// When it was last changed, in nanoseconds of Unix time, as it was found when it was opened.
  std::int64_t modified_ns() const { return modified_ns_; }
  /// Whether it has the length and the time that it was opened with.
  bool is_unchanged() const;
  /// Fills `into` from `offset` on; a file that ends before is an error.
  void read(std::uint64_t offset, std::span<std::byte> into) const;

 private:
  std::string path_;
  comm::OwnedDescriptor file_;
  std::uint64_t bytes_ = 0;
  std::int64_t modified_ns_ = 0;
};

/// All of a file of at most `longest` bytes.
std::string read_whole(const std::string& path, std::uint64_t longest);

/// A file held against its record: nothing that comes from it has not been checked, except with a
/// record without checksums. Keeps one block of memory. One thread at a time.
class CheckedFile {
 public:
  /// Throws Error{unavailable} naming the path if its length differs.
  CheckedFile(std::string path, const FileRecord& record);
  /// Throws Error{unavailable} naming the path and the block that is not as it was written.
  void read(std::uint64_t offset, std::span<std::byte> into);
  /// Indices of blocks that are not as they were written; reads the whole file.
  std::vector<std::size_t> damaged_blocks();

 private:
  std::span<std::byte> stage(std::size_t block);
  void check(std::size_t block, std::span<const std::byte> bytes) const;
  std::uint64_t block_bytes(std::size_t block) const;

  ReadFile file_;
  FileRecord record_;
  std::vector<std::byte> staging_;
  std::optional<std::size_t> staged_;  // the block that staging_ holds, checked
};

}  // namespace sprat::io
