// Reads of what lies in the page cache: a copy by whoever asks, without a hand-over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "io/readers/reader.hpp"

namespace sprat::io {

/// To copy so much takes about as long as to wake another thread for it, twice: longer reads are
/// handed over, so that several threads copy.
inline constexpr std::size_t longest_cached_read = std::size_t{128} << 10;

enum class CachedTry : std::uint8_t {
  whole,       ///< All bytes came.
  missing,     ///< Not all lies in the cache, or the file ends there; memory may have a part.
  impossible,  ///< The file system knows no reads without waiting.
};
/// Never waits for storage. Any thread.
CachedTry try_cached_read(int descriptor, std::uint64_t offset, std::span<std::byte> into) noexcept;

/// Whether the page cache has all of these bytes, none of them behind the file's end. Nothing:
/// the kernel does not tell; kernels since 6.5 do, of files that one owns or may write to. Reads
/// nothing, other than a read that is tried, which begins to read ahead.
std::optional<bool> lies_in_cache(int descriptor, std::uint64_t offset,
                                  std::uint64_t bytes) noexcept;

/// Tries reads without waiting for storage. One thread at a time.
class CachedReads final {
 public:
  explicit CachedReads(const ReaderOptions& options) : tries_(!options.direct) {}
  /// What is done, if all of a short read lies in the cache.
  std::optional<ReadDone> read(const Read& read);

 private:
  bool tries_;
};

}  // namespace sprat::io
