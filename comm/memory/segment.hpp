// Shared memory: anonymous files that peers of the same host map, and leave nothing behind.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/base/fork.hpp"

namespace sprat::comm {

/// Where a piece of a rank's memory lies, in words that a peer of its host understands.
struct MemoryRef {
  enum class Kind : std::uint32_t {
    unreachable,  ///< Private to its process.
    address,      ///< A pointer, for ranks of one process.
    process,      ///< A pointer into private memory, for read_foreign().
    segment,      ///< `offset` bytes into the anonymous file `fd` of the owner.
  };
  Kind kind = Kind::unreachable;
  std::int32_t fd = -1;
  std::uint64_t inode = 0;  ///< Tells a reused descriptor from the one that was meant.
  std::uint64_t segment_bytes = 0;
  std::uint64_t offset = 0;  ///< Or the pointer's value.
  bool operator==(const MemoryRef&) const = default;
};

/// A sealed anonymous file, mapped readable and writable. Owner of file and mapping.
class Segment {
 public:
  enum class Pages {
    as_touched,  ///< Memory is taken as it is used; peers may look at it after this segment's end.
    /// As it is used, too, if there is enough of it now. Given back at the end, although peers may
    /// keep their mappings a while: they read zeros from then on.
    given_back,
    huge  ///< The same, but all at once, and on huge pages as far as the kernel has them.
  };
  /// Zeroed; `bytes` is rounded up to pages; /proc shows `name`. Throws Error{unavailable}.
  explicit Segment(std::size_t bytes, Pages pages = Pages::as_touched, const char* name = "sprat");
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  /// False in a child forked later: peers cannot reach it there.
  bool here() const { return mark_.here(); }
  MemoryRef ref(std::size_t offset = 0) const;

 private:
  ProcessMark mark_;
  const Pages pages_;
  int fd_ = -1;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint64_t inode_ = 0;
};

/// A view of another process's segment. Owner of the mapping.
class PeerMapping {
 public:
  enum class Access {
    read,
    /// All of it can be written, though peers write to nothing but the bell: copies out of a
    /// mapping that can only be read took 1.6 times as long (16 KiB, on an EPYC virtual machine).
    ring,
  };
  /// Null, with errno, if it cannot be opened, is not the segment that `ref` means, or might
  /// shrink.
  static std::unique_ptr<PeerMapping> open(pid_t pid, const MemoryRef& ref, Access access);
  ~PeerMapping();
  PeerMapping(const PeerMapping&) = delete;
  PeerMapping& operator=(const PeerMapping&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  std::uint64_t inode() const { return inode_; }

 private:
  PeerMapping(std::byte* data, std::size_t bytes, std::uint64_t inode)
      : data_(data), bytes_(bytes), inode_(inode) {}
  std::byte* data_;
  std::size_t bytes_;
  std::uint64_t inode_;
};

/// A piece of another rank's memory, and all that follows it there.
struct PeerMemory {
  const std::byte* data = nullptr;  ///< Null: it cannot be reached.
  std::size_t bytes = 0;
  /// Shared with PeerMappings, which may let go of it while this is in use. Null: no mapping.
  std::shared_ptr<const PeerMapping> mapping = nullptr;
};

/// The mappings of one peer's segments, made when first asked for, the oldest dropped past a bound.
/// Not thread-safe: its context's token is held.
class PeerMappings {
 public:
  explicit PeerMappings(pid_t pid) : pid_(pid) {}
  /// The peer's memory at `ref`, a segment; none, with errno, if it cannot be mapped.
  PeerMemory view(const MemoryRef& ref);

 private:
  static constexpr std::size_t limit = 256;
  pid_t pid_;
  std::vector<std::shared_ptr<const PeerMapping>> mappings_;  ///< Most recently made last.
};

}  // namespace sprat::comm
