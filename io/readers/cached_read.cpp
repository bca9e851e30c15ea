#include "io/readers/cached_read.hpp"

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

namespace sprat::io {
namespace {

/// Newer than the headers of some systems whose kernels have it.
constexpr long cachestat_call = 451;
struct CacheRange {
  std::uint64_t offset = 0, bytes = 0;
};
/// In pages.
struct CacheCounts {
  std::uint64_t cached = 0, dirty = 0, written = 0, evicted = 0, recently_evicted = 0;
};

}  // namespace

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

std::optional<bool> lies_in_cache(int descriptor, std::uint64_t offset,
                                  std::uint64_t bytes) noexcept {
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const CacheRange range{.offset = offset, .bytes = bytes};
  CacheCounts counts;
  if (bytes == 0 || ::syscall(cachestat_call, descriptor, &range, &counts, 0) != 0) {
    return std::nullopt;
  }
  return counts.cached >= (offset + bytes - 1) / page - offset / page + 1;
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
