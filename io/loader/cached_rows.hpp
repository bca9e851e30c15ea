// Rows that are copied out of the page cache before anything is planned: a system call each.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "io/loader/assembly.hpp"
#include "io/loader/file_table.hpp"
#include "io/loader/observer.hpp"
#include "io/readers/open_files.hpp"

namespace sprat::io {

/// How many rows of a batch are worth a try, by how many of late lay in the cache: all of them as
/// long as four of five do, one where none does. Any thread, several at once.
class CacheLuck final {
 public:
  /// At least 1, unless refused().
  std::size_t tries() const noexcept;
  /// Whether the next try of a batch is worth its call.
  bool good() const noexcept { return credit_.load(std::memory_order_relaxed) > 0; }
  void tried(std::size_t hits, std::size_t misses) noexcept;
  /// The file system knows no reads without waiting: nothing is tried any more.
  void refused() noexcept { refused_.store(true, std::memory_order_relaxed); }

 private:
  // Relaxed, since they order nothing: a look that comes late costs a call, or saves one.
  std::atomic<std::int64_t> credit_{64};
  std::atomic<bool> refused_{false};
};

/// The rows of one batch that are worth a try. Any thread may help, several at once; who helps
/// keeps the build until it returns.
class RowCopies final {
 public:
  /// Bytes of a row that lie in one file; null: the file did not open.
  struct RowPiece {
    const OpenFile* file = nullptr;
    Target target = 0;
    Extent extent;
  };
  struct Rows {
    std::vector<RowPiece> pieces;       ///< Of all rows, in their order.
    std::vector<std::uint32_t> behind;  ///< The pieces of row i are [behind[i - 1], behind[i]).
    /// What keeps descriptors open: one that was closed and given to another file would give that
    /// file's bytes.
    std::vector<std::shared_ptr<const OpenFile>> files;
  };
  /// Rows are the first samples of the batch. What is named outlives it.
  RowCopies(DataBatch::Impl& batch, Rows rows, std::shared_ptr<CacheLuck> luck, Observer& observer);

  /// What a call of copy() has brought about.
  struct Copied {
    std::size_t rows = 0;  ///< That are whole now.
    /// No row is open any more, and some are missing(). True of one call for each batch.
    bool leaves_missing = false;
  };
  /// Copies some of the rows that nobody else has begun.
  Copied copy();
  /// Other threads copy the last rows just now.
  bool ends_soon() const noexcept {
    return !has_open_rows() && unended_.load(std::memory_order_relaxed) > 0;
  }
  std::size_t rows() const noexcept { return rows_.behind.size(); }
  /// Whether there are rows that nobody has begun.
  bool has_open_rows() const noexcept {
    return next_.load(std::memory_order_relaxed) < rows_.behind.size();
  }

  /// Rows that are not in the cache, and their extents. Once leaves_missing was told.
  std::vector<std::size_t> missing() const;
  Extents extents(std::size_t row) const;
  bool is_filled(std::size_t row) const { return filled_[row] != 0; }

 private:
  std::span<const RowPiece> pieces(std::size_t row) const;
  std::size_t fill(std::size_t first, std::size_t behind);
  bool fill(std::size_t row);

  DataBatch::Impl& batch_;
  const Rows rows_;
  const std::shared_ptr<CacheLuck> luck_;  // shared with who fetches, who may end before
  Observer& observer_;
  std::atomic<std::size_t> next_{0};    // relaxed: a row is whoever's turned it up
  std::atomic<std::size_t> unended_;    // acq_rel: who ends the last one sees what others filled
  std::atomic<std::size_t> misses_{0};  // published by unended_
  std::vector<std::uint8_t> filled_;    // by row; each is written by who has begun it
};

/// Opens the files of rows and says which are worth a try. The thread that fetches alone.
class CachedRows final {
 public:
  /// can_try: files are read through the page cache, and can be without waiting. Others outlive it.
  CachedRows(const FileTable& table, OpenFiles& files, Observer& observer, bool can_try)
      : table_(table), files_(files), observer_(observer), can_try_(can_try) {}

  /// extents: of the batch's samples, as the table numbers files. Null: nothing is to be tried.
  std::shared_ptr<RowCopies> copies_of(DataBatch::Impl& batch, std::span<const Extents> extents);

 private:
  std::shared_ptr<const OpenFile> open(std::uint32_t file);

  const FileTable& table_;
  OpenFiles& files_;
  Observer& observer_;
  const bool can_try_;
  const std::shared_ptr<CacheLuck> luck_ = std::make_shared<CacheLuck>();
};

}  // namespace sprat::io
