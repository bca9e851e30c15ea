// Of a warm sample, planning, queueing and joining cost several times what its copy does; so the
// copy is tried first, and only what is missing is planned.
#include "io/loader/cached_rows.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "io/readers/cached_read.hpp"
#include "sprat/error.hpp"

namespace sprat::io {
namespace {

/// A miss costs a call and saves none, so it weighs as much as four hits.
constexpr std::int64_t misses_weigh = 4;
/// So much luck is remembered: of files that are no longer cached, a batch or two find out.
constexpr std::int64_t most_credit = 256;
/// From here on all rows are tried.
constexpr std::int64_t ample_credit = 64;

/// So long a turn lasts at most: whoever helps looks whether its own batch is ready.
constexpr std::size_t most_rows_a_turn = 16;

}  // namespace

std::size_t CacheLuck::tries() const noexcept {
  if (refused_.load(std::memory_order_relaxed)) {
    return 0;
  }
  const std::int64_t credit = credit_.load(std::memory_order_relaxed);
  // One is always tried: else nobody would learn that files have become cached.
  return credit >= ample_credit ? SIZE_MAX
                                : static_cast<std::size_t>(std::max<std::int64_t>(credit, 1));
}

void CacheLuck::tried(std::size_t hits, std::size_t misses) noexcept {
  const std::int64_t change =
      static_cast<std::int64_t>(hits) - misses_weigh * static_cast<std::int64_t>(misses);
  // Two threads at once may lose one's change: that is luck, too.
  credit_.store(
      std::clamp<std::int64_t>(credit_.load(std::memory_order_relaxed) + change, 0, most_credit),
      std::memory_order_relaxed);
}

RowCopies::RowCopies(DataBatch::Impl& batch, Rows rows, std::shared_ptr<CacheLuck> luck,
                     Observer& observer)
    : batch_(batch),
      rows_(std::move(rows)),
      luck_(std::move(luck)),
      observer_(observer),
      unended_(rows_.behind.size()),
      filled_(rows_.behind.size(), 0) {}

std::span<const RowCopies::RowPiece> RowCopies::pieces(std::size_t row) const {
  const std::size_t first = row == 0 ? 0 : rows_.behind[row - 1];
  return std::span(rows_.pieces).subspan(first, rows_.behind[row] - first);
}

/// A quarter of what is left: the last ones are begun one by one, so that all who help end at once.
RowCopies::Copied RowCopies::copy() {
  const std::size_t begun_before = next_.load(std::memory_order_relaxed);
  const std::size_t left = rows() - std::min(begun_before, rows());
  const std::size_t most = std::clamp<std::size_t>(left / 4, 1, most_rows_a_turn);
  const std::size_t first = next_.fetch_add(most, std::memory_order_relaxed);
  const std::size_t behind = std::min(first + most, rows_.behind.size());
  if (first >= behind) {
    return {};
  }
  const std::size_t begun = behind - first, filled = fill(first, behind);
  misses_.fetch_add(begun - filled, std::memory_order_relaxed);
  const bool ended = unended_.fetch_sub(begun, std::memory_order_acq_rel) == begun;
  return {.rows = filled, .leaves_missing = ended && misses_.load(std::memory_order_relaxed) > 0};
}

/// Returns how many it has filled. What is observed is told by runs of one target, not by row.
std::size_t RowCopies::fill(std::size_t first, std::size_t behind) {
  std::size_t hits = 0, tries = 0;
  CachedReadSum sum;
  auto since = Observer::Clock::now();
  const auto tell = [&] {
    const auto now = Observer::Clock::now();
    sum.took = now - std::exchange(since, now);
    observer_.reads_were_cached(sum);
    sum = {};
  };
  for (std::size_t row = first; row < behind; ++row, ++tries) {
    // The first row of a batch is tried without luck, too.
    if (row > 0 && !luck_->good()) {
      break;
    }
    if (!fill(row)) {
      continue;
    }
    ++hits;
    for (const RowPiece& piece : pieces(row)) {
      if (sum.reads > 0 && sum.target != piece.target) {
        tell();
      }
      sum.target = piece.target;
      ++sum.reads;
      sum.bytes += piece.extent.bytes;
    }
  }
  if (sum.reads > 0) {
    tell();
  }
  luck_->tried(hits, tries - hits);
  return hits;
}

bool RowCopies::fill(std::size_t row) {
  const std::span<std::byte> to = batch_.row(row);
  std::uint64_t at = 0;
  for (const RowPiece& piece : pieces(row)) {
    if (piece.file == nullptr) {
      return false;
    }
    switch (try_cached_read(piece.file->descriptor(), piece.extent.offset,
                            to.subspan(at, piece.extent.bytes))) {
      case CachedTry::whole:
        at += piece.extent.bytes;
        continue;
      case CachedTry::impossible:
        luck_->refused();
        return false;
      case CachedTry::missing:
        return false;
    }
  }
  batch_.samples[row].bytes = to.first(at);
  filled_[row] = 1;
  return true;
}

std::vector<std::size_t> RowCopies::missing() const {
  std::vector<std::size_t> rows;
  for (std::size_t row = 0; row < filled_.size(); ++row) {
    if (filled_[row] == 0) {
      rows.push_back(row);
    }
  }
  return rows;
}

Extents RowCopies::extents(std::size_t row) const {
  Extents extents;
  for (const RowPiece& piece : pieces(row)) {
    extents.push_back(piece.extent);
  }
  return extents;
}

std::shared_ptr<RowCopies> CachedRows::copies_of(DataBatch::Impl& batch,
                                                 std::span<const Extents> extents) {
  const std::size_t rows = can_try_ ? std::min(luck_->tries(), extents.size()) : 0;
  const auto is_long = [](const Extents& of_row) {
    return std::ranges::any_of(of_row,
                               [](const Extent& one) { return one.bytes > longest_cached_read; });
  };
  if (rows == 0 || std::ranges::any_of(extents.first(rows), is_long)) {
    return nullptr;
  }
  RowCopies::Rows made;
  made.pieces.reserve(rows);
  made.behind.reserve(rows);
  std::uint32_t last_file = 0;
  for (const Extents& of_row : extents.first(rows)) {
    for (const Extent& extent : of_row) {
      if (made.files.empty() || last_file != extent.file) {
        made.files.push_back(open(extent.file));
        last_file = extent.file;
      }
      made.pieces.push_back(
          {.file = made.files.back().get(),
           .target = target_run(table_.place(extent.file, 1), extent.offset).target,
           .extent = extent});
    }
    made.behind.push_back(static_cast<std::uint32_t>(made.pieces.size()));
  }
  return std::make_shared<RowCopies>(batch, std::move(made), luck_, observer_);
}

/// Null if it does not open, or is another file: then its rows are planned, and whoever starts
/// their reads finds out why, and tells.
std::shared_ptr<const OpenFile> CachedRows::open(std::uint32_t file) {
  const auto begin = Observer::Clock::now();
  try {
    const OpenFiles::Opened opened = files_.open(file);
    if (opened.fresh) {
      observer_.file_opened(Observer::Clock::now() - begin);
    }
    return opened.file;
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace sprat::io
