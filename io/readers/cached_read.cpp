#include "io/readers/cached_read.hpp"

#include <sys/uio.h>

#include <cerrno>

namespace sprat::io {
namespace {

/// To copy so much takes about as long as to wake another thread for it, twice: longer reads are
/// handed over, so that several threads copy.
constexpr std::size_t longest_bytes = std::size_t{128} << 10;

}  // namespace

std::optional<ReadDone> CachedReads::read(const Read& read) {
  if (!tries_ || read.into.size() > longest_bytes) {
    return std::nullopt;
  }
  const auto begin = std::chrono::steady_clock::now();
  const iovec into{.iov_base = read.into.data(), .iov_len = read.into.size()};
  const ssize_t got =
      ::preadv2(read.descriptor, &into, 1, static_cast<off_t>(read.offset), RWF_NOWAIT);
  if (got == static_cast<ssize_t>(read.into.size())) {
    return ReadDone{.tag = read.tag,
                    .bytes = read.into.size(),
                    .error = 0,
                    .took = std::chrono::steady_clock::now() - begin,
                    .cached = true};
  }
  // A part may be all that is cached, or all that the file has: the read that waits tells which.
  // Lustre and others know no reads without waiting, and are not asked again.
  tries_ = got >= 0 || errno != EOPNOTSUPP;
  return std::nullopt;
}

}  // namespace sprat::io
