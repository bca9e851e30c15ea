#include "io/readers/cached_read.hpp"

#include <sys/uio.h>

#include <cerrno>

namespace sprat::io {

CachedTry try_cached_read(int descriptor, std::uint64_t offset,
                          std::span<std::byte> into) noexcept {
  const iovec to{.iov_base = into.data(), .iov_len = into.size()};
  const ssize_t got = ::preadv2(descriptor, &to, 1, static_cast<off_t>(offset), RWF_NOWAIT);
  if (got == static_cast<ssize_t>(into.size())) {
    return CachedTry::whole;
  }
  // A part may be all that is cached, or all that the file has: the read that waits tells which.
  return got < 0 && errno == EOPNOTSUPP ? CachedTry::impossible : CachedTry::missing;
}

std::optional<ReadDone> CachedReads::read(const Read& read) {
  if (!tries_ || read.into.size() > longest_cached_read) {
    return std::nullopt;
  }
  const auto begin = std::chrono::steady_clock::now();
  const CachedTry tried = try_cached_read(read.descriptor, read.offset, read.into);
  // Lustre and others know no reads without waiting, and are not asked again.
  tries_ = tried != CachedTry::impossible;
  if (tried != CachedTry::whole) {
    return std::nullopt;
  }
  return ReadDone{.tag = read.tag,
                  .bytes = read.into.size(),
                  .error = 0,
                  .took = std::chrono::steady_clock::now() - begin,
                  .cached = true};
}

}  // namespace sprat::io
