// Reads of what lies in the page cache: a copy by whoever asks, without a hand-over.
#pragma once

#include <optional>

#include "io/readers/reader.hpp"

namespace sprat::io {

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
