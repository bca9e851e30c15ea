#include "io/readers/probe.hpp"

#include <fcntl.h>
#include <liburing.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>

#include "comm/base/aligned.hpp"
#include "comm/base/check.hpp"
#include "comm/base/owned_descriptor.hpp"
#include "io/readers/cached_read.hpp"

namespace sprat::io {
namespace {

using comm::open_to_read;
using comm::OwnedDescriptor;

/// Of direct reads, however little a file system asks for: pages of memory are whole then, too.
constexpr std::uint32_t least_alignment = 4096;
/// Nobody asks for more; a larger answer is none to plan by.
constexpr std::uint32_t most_alignment = std::uint32_t{1} << 20;

/// What the file system says of itself, where kernel and headers know the question; 0: no direct
/// reads, nullopt: it does not say.
std::optional<std::uint32_t> told_alignment(int file) {
#ifdef STATX_DIOALIGN
  struct statx told {};
  if (::statx(file, "", AT_EMPTY_PATH, STATX_DIOALIGN, &told) == 0 &&
      (told.stx_mask & STATX_DIOALIGN) != 0) {
    return std::max(told.stx_dio_mem_align, told.stx_dio_offset_align);
  }
#else
  static_cast<void>(file);
#endif
  return std::nullopt;
}

/// 0 if no file is opened for direct reads.
std::uint32_t alignment_of(const OwnedDescriptor& file) {
  if (file.number() < 0) {
    return 0;
  }
  const std::uint32_t told = told_alignment(file.number()).value_or(least_alignment);
  if (told == 0 || told > most_alignment || !std::has_single_bit(told)) {
    return 0;
  }
  return std::max(told, least_alignment);
}

/// 0 if direct reads do not work. A try is the answer: some file systems take the flag and refuse
/// the reads, others say nothing and read.
std::uint32_t direct_alignment(const OwnedDescriptor& file) {
  const std::uint32_t alignment = alignment_of(file);
  if (alignment == 0) {
    return 0;
  }
  const AlignedMemory<std::byte> block = aligned_memory<std::byte>(alignment, alignment);
  return ::pread(file.number(), block.get(), alignment, 0) < 0 ? 0 : alignment;
}

bool tries_reads(int file) {
  std::byte byte{};
  const iovec into{.iov_base = &byte, .iov_len = 1};
  return ::preadv2(file, &into, 1, 0, RWF_NOWAIT) >= 0 || errno == EAGAIN;
}

int uring_error() {
  io_uring ring{};
  const int error = -::io_uring_queue_init(2, &ring, 0);
  if (error != 0) {
    return error;
  }
  ::io_uring_queue_exit(&ring);
  // Kernels before 5.11 time a wait by an entry of its own in the ring.
  return (ring.features & IORING_FEAT_EXT_ARG) != 0 ? 0 : ENOSYS;
}

}  // namespace

std::string_view file_system_kind(std::uint32_t magic) {
  struct NamedMagic {
    std::uint32_t magic;
    std::string_view kind;
  };
  // statfs(2) and the headers of these systems.
  static constexpr std::array rows = {
      NamedMagic{0x0BD00BD0, "lustre"},   NamedMagic{0xEF53, "ext"},
      NamedMagic{0x58465342, "xfs"},      NamedMagic{0x9123683E, "btrfs"},
      NamedMagic{0x01021994, "tmpfs"},    NamedMagic{0x794C7630, "overlay"},
      NamedMagic{0x6969, "nfs"},          NamedMagic{0x65735546, "fuse"},
      NamedMagic{0x2FC12FC1, "zfs"},      NamedMagic{0x00C36400, "ceph"},
      NamedMagic{0x47504653, "gpfs"},     NamedMagic{0x19830326, "beegfs"},
      NamedMagic{0xFF534D42, "smb"},      NamedMagic{0xFE534D42, "smb"},
      NamedMagic{0x01021997, "9p"},       NamedMagic{0xF2F52010, "f2fs"},
      NamedMagic{0xCA451A4E, "bcachefs"}, NamedMagic{0x73717368, "squashfs"}};
  const auto* found = std::ranges::find(rows, magic, &NamedMagic::magic);
  return found == rows.end() ? "other" : found->kind;
}

namespace {

/// What needs no read.
FileSystem look_at(const OwnedDescriptor& file, const std::string& path) {
  need(file.number() >= 0, "cannot open ", path, ": ", std::strerror(errno));
  struct stat status {};
  struct statfs where {};
  need(::fstat(file.number(), &status) == 0 && ::fstatfs(file.number(), &where) == 0,
       "cannot look at ", path, ": ", std::strerror(errno));
  need(S_ISREG(status.st_mode), path, " is no file of data; name one that holds records");
  return {.kind = file_system_kind(static_cast<std::uint32_t>(where.f_type)),
          .uring_error = uring_error()};
}

}  // namespace

FileSystem probe_file_system(const std::string& path) {
  const OwnedDescriptor file = open_to_read(path.c_str());
  FileSystem found = look_at(file, path);
  const std::uint32_t alignment = direct_alignment(open_to_read(path.c_str(), O_DIRECT));
  found.takes_direct = alignment > 0;
  found.alignment = std::max(alignment, 1u);
  found.tries_reads = tries_reads(file.number());
  found.tells_cached = lies_in_cache(file.number(), 0, 1).has_value();
  return found;
}

FileSystem probe_without_reading(const std::string& path) {
  FileSystem found = look_at(open_to_read(path.c_str()), path);
  const std::uint32_t alignment = alignment_of(open_to_read(path.c_str(), O_DIRECT));
  found.takes_direct = alignment > 0;
  found.alignment = std::max(alignment, 1u);
  return found;
}

}  // namespace sprat::io
