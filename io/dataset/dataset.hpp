// A dataset: files of one format whose records are known, so that each can be read alone.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/dataset/extent.hpp"
#include "io/dataset/record_table.hpp"
#include "io/formats/format.hpp"

namespace sprat::io {

struct DatasetOptions {
  /// Files, folders (all files in them with the format's endings), or patterns with * and ?.
  std::vector<std::string> paths;
  std::string format = "auto";  ///< By magic, then by ending; one for all files.
  FormatOptions format_options = {};
  /// Where the index is kept; empty: beside the first file, or, where nobody may write there, in
  /// the user's cache folder.
  std::string index_path = {};
  int threads = 0;  ///< That index; 0: a quarter of the cores.
};

/// Immutable once open; any thread may ask, several at once.
class Dataset final : public RecordTable {
 public:
  /// Reads the index, or makes it and keeps it. A file's stamp is compared when the file is first
  /// opened for reading, so opening a dataset of many files looks at its index alone: files that
  /// came or went are seen, those that changed are not. Throws Error{unavailable} naming files that
  /// cannot be indexed.
  static std::shared_ptr<const Dataset> open(const DatasetOptions& options);

  const Format& format() const noexcept;
  /// Paths, in the order of their names.
  std::span<const std::string> files() const noexcept;
  const FileStamp& stamp(std::uint32_t file) const;
  /// For whoever opens a file. Throws Error{unavailable} naming it, what it was and what it is, and
  /// the remedy, unless the descriptor's stamp is that of the index.
  void require_unchanged(std::uint32_t file, int descriptor) const;
  /// For Format::fields() of that file's records.
  const std::string& context(std::uint32_t file) const;
  std::uint64_t records() const noexcept override;
  std::uint32_t file_count() const noexcept override {
    return static_cast<std::uint32_t>(files().size());
  }
  std::string file_name(std::uint32_t file) const override { return files()[file]; }
  /// O(log files). index < records().
  Extent record(std::uint64_t index) const override;
  /// The first record of a file; of one behind the last, records().
  std::uint64_t first_record(std::uint32_t file) const override;
  /// Bytes of one record where all have one length (token shards: of a token); else 0.
  std::uint64_t record_bytes() const noexcept override;
  /// Of the files' names (without folders), sizes and records: equal on ranks that see one dataset.
  std::uint64_t fingerprint() const noexcept override;

 private:
  struct Impl;
  explicit Dataset(std::shared_ptr<const Impl> impl);
  // Shared only since its type is known to one source; a Dataset has one owner itself.
  std::shared_ptr<const Impl> impl_;
};

}  // namespace sprat::io
