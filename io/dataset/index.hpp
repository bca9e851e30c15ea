// What is known of a dataset's files once they were indexed: in memory, as bytes, and as a file.
//
// A file of it is: magic, u32 version, u64 key, texts (format, how it was told), u64 files, an
// entry for each (u64 bytes, then those), and XXH3 of all before. Numbers are of least byte first.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/dataset/streamed_file.hpp"
#include "io/formats/format.hpp"

namespace sprat::io {

/// Spans of 12 bytes each: a file has fewer than 2^48 bytes.
class SpanTable {
 public:
  void append(RecordSpan span);
  RecordSpan operator[](std::size_t at) const;
  std::size_t size() const noexcept { return rows_.size(); }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(rows_)); }
  /// Takes what bytes() gave.
  void assign(std::span<const std::byte> bytes);

  friend bool operator==(const SpanTable&, const SpanTable&) = default;

 private:
  // Low halves of offset and bytes, then 16 high bits of each.
  using Row = std::array<std::uint32_t, 3>;
  std::vector<Row> rows_;
};

/// FileIndex, as it is kept.
struct FileRecords {
  FileStamp stamp;
  std::vector<Companion> companions;
  std::uint64_t first = 0, stride = 0, count = 0;  ///< As in FileIndex.
  SpanTable spans;
  std::string context;

  std::uint64_t records() const noexcept { return stride > 0 ? count : spans.size(); }
  /// `record` < records().
  RecordSpan span(std::uint64_t record) const {
    return stride > 0 ? RecordSpan{.offset = first + record * stride, .bytes = stride}
                      : spans[record];
  }
  friend bool operator==(const FileRecords&, const FileRecords&) = default;
};

/// Throws Error{unavailable} naming `path` unless all records lie in the file of that stamp.
FileRecords file_records(const std::string& path, const FileIndex& index,
                         std::vector<Companion> companions);

/// A file of a dataset by the name that its folder's index gives it.
struct NamedRecords {
  std::string name;
  FileRecords records;

  friend bool operator==(const NamedRecords&, const NamedRecords&) = default;
};

struct DatasetIndex {
  std::string format;
  std::string how;                  ///< The format was told, for people.
  std::vector<NamedRecords> files;  ///< By name, ascending.

  friend bool operator==(const DatasetIndex&, const DatasetIndex&) = default;
};

std::string encode_entry(const NamedRecords& file);
/// Throws Error{unavailable} saying what is wrong: cut short, too long, or records beyond the file.
NamedRecords decode_entry(std::string_view bytes);

/// `key` tells one dataset's index from another's. Replaces what is there in one step; what is read
/// back is on the disk. Throws Error{unavailable}.
void write_index(const std::string& path, std::uint64_t key, const DatasetIndex& index);
/// nullopt if there is none. Throws Error{unavailable} naming the path if it is damaged, of another
/// version, or of another dataset.
std::optional<DatasetIndex> read_index(const std::string& path, std::uint64_t key);

/// Text that no other process has at this moment, for names of new files.
std::string unique_ending();

}  // namespace sprat::io
