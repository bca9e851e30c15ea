#include "comm/memory/segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "comm/base/check.hpp"
#include "comm/base/memory_room.hpp"

namespace sprat::comm {
namespace {

std::size_t round_to_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

constexpr std::size_t huge_page = std::size_t{2} << 20;
#ifndef MADV_COLLAPSE
constexpr int MADV_COLLAPSE = 25;  // Linux 6.1
#endif

/// Much memory that is not there is to be noticed now: whoever touches it then would be killed.
std::size_t checked(std::size_t bytes, Segment::Pages pages) {
  if (pages != Segment::Pages::as_touched) {
    need_memory(bytes, "shared memory");
  }
  return bytes;
}

/// Maps a file where huge pages can be: at a multiple of their size if it is that long.
/// MAP_FAILED and errno as mmap().
void* map_shared(int fd, std::size_t bytes, int protection) {
  if (bytes < huge_page) {
    return mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  }
  // mmap() aligns to small pages only. So address space is reserved that is longer by one huge
  // page, the file is mapped at the first aligned address in it, and what is left over is given
  // back.
  void* room = mmap(nullptr, bytes + huge_page, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) {
    return room;
  }
  auto* const first = static_cast<std::byte*>(room);
  const std::size_t ahead =
      (huge_page - reinterpret_cast<std::uintptr_t>(room) % huge_page) % huge_page;
  void* const address = mmap(first + ahead, bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0);
  if (address == MAP_FAILED) {
    munmap(room, bytes + huge_page);
    return address;
  }
  if (ahead > 0) {
    munmap(first, ahead);
  }
  munmap(first + ahead + bytes, huge_page - ahead);
  return address;
}

/// Backs whole huge pages' worth with huge pages, if the kernel has some, whatever its settings for
/// shared memory. The kernel cannot collapse a range of which no page is there, hence the touches.
/// A failure changes nothing but the speed.
void take_huge_pages(std::byte* data, std::size_t bytes) {
  const std::size_t whole = bytes / huge_page * huge_page;
  for (std::size_t at = 0; at < whole; at += huge_page) {
    static_cast<volatile std::byte*>(data)[at] = std::byte{0};
  }
  if (whole > 0) {
    (void)madvise(data, whole, MADV_COLLAPSE);
  }
}

[[noreturn]] void refuse_segment(std::size_t bytes, int error) {
  const char* advice = error == EMFILE || error == ENFILE
                           ? "; raise the limit of open files (ulimit -n)"
                           : "; free memory of this host, or raise this process's limits of it "
                             "(ulimit -v, and its container's)";
  throw Error(
      ErrorCode::unavailable,
      text("cannot have ", bytes, " bytes of shared memory: ", std::strerror(error), advice));
}

}  // namespace

Segment::Segment(std::size_t bytes, Pages pages, const char* name)
    : pages_(pages), bytes_(round_to_pages(std::max<std::size_t>(checked(bytes, pages), 1))) {
  fd_ = open_here_only([&] { return memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING); });
  if (fd_ < 0) {
    refuse_segment(bytes_, errno);
  }
  struct stat status {};
  void* address = MAP_FAILED;
  if (ftruncate(fd_, static_cast<off_t>(bytes_)) == 0 && fstat(fd_, &status) == 0) {
    address = map_shared(fd_, bytes_, PROT_READ | PROT_WRITE);
  }
  if (address == MAP_FAILED) {
    const int error = errno;
    close_and_forget(fd_);
    refuse_segment(bytes_, error);
  }
  // Peers may rely on the size; without the seal a shrunken file would kill them by SIGBUS.
  fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  inode_ = status.st_ino;
  data_ = static_cast<std::byte*>(address);
  if (pages == Pages::huge) {
    take_huge_pages(data_, bytes_);
  }
}

Segment::~Segment() {
  munmap(data_, bytes_);
  if (!here()) {
    return;  // the parent still uses its pages, and fd_ may mean another file by now
  }
  if (pages_ != Pages::as_touched) {
    // A peer that still maps the file would keep its memory: the hole gives the pages back at once.
    (void)fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes_));
  }
  close_and_forget(fd_);
}

MemoryRef Segment::ref(std::size_t offset) const {
  return {MemoryRef::Kind::segment, fd_, inode_, bytes_, offset};
}

std::unique_ptr<PeerMapping> PeerMapping::open(pid_t pid, const MemoryRef& ref, Access access) {
  const bool rings = access == Access::ring;
  const std::string path = text("/proc/", pid, "/fd/", ref.fd);
  // The owner may have closed the descriptor, and its number may mean a pipe by now: O_NONBLOCK
  // keeps open() from waiting for the other end of it.
  const int fd = ::open(path.c_str(), (rings ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return nullptr;
  }
  struct stat status {};
  void* address = MAP_FAILED;
  const bool meant = fstat(fd, &status) == 0 && status.st_ino == ref.inode &&
                     static_cast<std::uint64_t>(status.st_size) == ref.segment_bytes;
  // A file that may shrink is refused: reading past its new end would end this process by SIGBUS.
  const int seals = fcntl(fd, F_GET_SEALS);
  if (meant && seals >= 0 && (seals & F_SEAL_SHRINK) != 0) {
    address = map_shared(fd, ref.segment_bytes, PROT_READ | (rings ? PROT_WRITE : 0));
  } else {
    errno = ESTALE;  // the descriptor means another file by now
  }
  const int error = errno;
  close(fd);
  if (address == MAP_FAILED) {
    errno = error;
    return nullptr;
  }
  return std::unique_ptr<PeerMapping>(
      new PeerMapping(static_cast<std::byte*>(address), ref.segment_bytes, ref.inode));
}

PeerMapping::~PeerMapping() { munmap(data_, bytes_); }

// The offset comes from the peer and may be nonsense: it is cut to what is mapped. A mapping that
// is dropped here lives on while an operation holds it.
PeerMemory PeerMappings::view(const MemoryRef& ref) {
  const auto within = [&](const std::shared_ptr<const PeerMapping>& mapping) {
    const std::size_t offset = std::min<std::uint64_t>(ref.offset, mapping->bytes());
    return PeerMemory{mapping->data() + offset, mapping->bytes() - offset, mapping};
  };
  for (auto found = mappings_.rbegin(); found != mappings_.rend(); ++found) {
    if ((*found)->inode() == ref.inode) {
      return within(*found);
    }
  }
  std::shared_ptr<const PeerMapping> mapping =
      PeerMapping::open(pid_, ref, PeerMapping::Access::read);
  if (!mapping) {
    return {};
  }
  if (mappings_.size() == limit) {
    mappings_.erase(mappings_.begin());
  }
  mappings_.push_back(mapping);
  return within(mapping);
}

}  // namespace sprat::comm
