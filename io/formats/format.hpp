// A format of datasets: how the records of a file are found, and what is inside of one. One file
// each beside this table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sprat::io {

/// What an index was made from; a file whose stamp differs is not the one that was indexed.
struct FileStamp {
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;

  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

/// A record's bytes in its file.
struct RecordSpan {
  std::uint64_t offset = 0, bytes = 0;

  friend bool operator==(const RecordSpan&, const RecordSpan&) = default;
};

/// Where the records of one file are. Each record is one range of bytes, which fields() takes apart
/// without the rest of the file.
struct FileIndex {
  FileStamp stamp;  ///< Set by whoever opened the file; formats leave it alone.
  /// Records of one length: `count` of `stride` bytes each from `first` on, as tokens are. If
  /// stride is 0, spans has them.
  std::uint64_t first = 0, stride = 0, count = 0;
  std::vector<RecordSpan> spans;
  /// What fields() needs to know beside the record, as the columns of an MDS shard. Short.
  std::string context;

  std::uint64_t records() const noexcept { return stride > 0 ? count : spans.size(); }
};

/// A named part of a record. A name may come several times, as lists of texts do.
struct Field {
  std::string name;
  std::string type;                  ///< "bytes", "text", "json", or an element's: "u16", "f32".
  std::vector<std::uint64_t> shape;  ///< Of elements; empty for one, or where type is no element's.
  std::span<const std::byte>
      bytes;  ///< Points into the record, or into what `owner` keeps. Not aligned.
  /// What does not lie in the record as it is meant, such as texts with escapes. Shared, so that a
  /// copy of a Field is as good as the Field.
  std::shared_ptr<const void> owner = {};
};

/// A file that is being indexed. Calls throw Error naming the file. One thread at a time.
class IndexedFile {
 public:
  virtual ~IndexedFile() = default;
  virtual const std::string& path() const = 0;
  virtual std::uint64_t bytes() const = 0;
  /// Fills `into` from `offset` on; bytes beyond the file's end are an error. Cheap in ascending
  /// order, however small.
  virtual void read(std::uint64_t offset, std::span<std::byte> into) = 0;
  /// The file of that name in the same folder, or null if there is none.
  virtual std::unique_ptr<IndexedFile> beside(const std::string& name) = 0;
};

/// What users say of a format where files do not tell themselves.
struct FormatOptions {
  std::string token_type = {};  ///< "u16", "u32" ...; of files of tokens without a header.
  std::string separator = {};   ///< Between documents of a text; empty: a file is one document.

  friend bool operator==(const FormatOptions&, const FormatOptions&) = default;
};

/// What a format's own list of files says of one of them.
struct CatalogueEntry {
  std::string name;
  std::uint64_t bytes = 0, records = 0;
};

struct Format {
  std::string_view name;                      ///< As users type it: "webdataset".
  std::string_view about;                     ///< One sentence of --help.
  std::span<const std::string_view> endings;  ///< Of names, ".tar"; lower case.
  /// Whether a file is of this format, by what it begins with or what lies beside it; never by its
  /// name. Takes any bytes.
  bool (*recognises)(IndexedFile& file);
  /// One pass over the file. Throws Error{unavailable} naming file, offset, and what is wrong.
  FileIndex (*index)(IndexedFile& file, const FormatOptions& options);
  /// The parts of a record, which is number `record` of its file. Pure. Throws Error{unavailable}
  /// saying what is wrong with it.
  std::vector<Field> (*fields)(std::string_view context, std::uint64_t record,
                               std::span<const std::byte> bytes);
  /// The file in a folder that lists its files, "index.json", and what it says; empty and null
  /// where the format has none.
  std::string_view catalogue_name = {};
  std::vector<CatalogueEntry> (*catalogue)(IndexedFile& file) = nullptr;
};

/// All formats, in the order in which files are asked for their magic.
std::span<const Format* const> formats();
/// Throws Error{invalid_argument} with the names there are.
const Format& format_named(std::string_view name);
/// Whether a file's name has one of the format's endings, in any case.
bool has_ending_of(const Format& format, std::string_view name);

/// A format that was found out, and by what, for people: "by its first bytes".
struct Recognised {
  const Format* format = nullptr;
  std::string_view how;
};
/// Asks the file, then its name. Throws Error{unavailable} naming the file if neither tells.
Recognised recognise(IndexedFile& file);

}  // namespace sprat::io
