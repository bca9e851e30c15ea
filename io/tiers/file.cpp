// The tier in files that have no name, so a crash leaves nothing. Arrays are mapped: the kernel
// writes them out while nobody looks, and what was released is the first that memory lacks. Slots
// are written and read, and leave nothing in memory but the last pieces on their way to the disk.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <vector>

#include "comm/base/check.hpp"
#include "comm/base/owned_descriptor.hpp"
#include "io/durable.hpp"
#include "io/tier_kind.hpp"

namespace sprat::io {
namespace {

std::size_t whole_pages(std::size_t bytes) {
  static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

/// A file that lives as long as its descriptor and mappings.
class NamelessFile {
 public:
  explicit NamelessFile(const std::string& folder) : folder_(folder) {
    std::string path = folder + "/sprat-tier-XXXXXX";
    file_ = comm::OwnedDescriptor(::mkostemp(path.data(), O_CLOEXEC));
    need(file_.open(), "cannot make a file for a tier in \"", folder, "\": ", std::strerror(errno),
         "; name a folder that exists and can be written");
    ::unlink(path.c_str());
  }

  int descriptor() const { return file_.number(); }
  std::uint64_t end() const { return end_; }
  /// Blocks of the disk are reserved now: later a full disk would say so where nobody can act.
  void grow(std::uint64_t end) {
    if (end <= end_) {
      return;
    }
    const std::uint64_t bytes = end - end_;
    const SizeLimitFails limit;
    const int error =
        ::posix_fallocate(descriptor(), static_cast<off_t>(end_), static_cast<off_t>(bytes));
    need(error == 0, "cannot reserve ", bytes, " bytes more in \"", folder_, "\", after ", end_,
         ": ", std::strerror(error), "; free some space there, or name another folder",
         error == EFBIG ? ", or raise the limit of file sizes (ulimit -f)" : "");
    end_ = end;
  }

 private:
  std::string folder_;
  comm::OwnedDescriptor file_;
  std::uint64_t end_ = 0;
};

/// Of what was written, pages that may be in memory still. A piece or two, so that the disk has
/// something to do while the next one is copied.
constexpr std::size_t most_unsettled_bytes = std::size_t{2} << 20;

class FilePlace final : public TierPlace {
 public:
  FilePlace(const std::string& folder, std::size_t slot_bytes)
      : folder_(folder), mapped_(folder), slots_(folder) {
    // The kernel would read on behind a slot, and keep what nobody asks for.
    ::posix_fadvise(slots_.descriptor(), 0, 0, POSIX_FADV_RANDOM);
    if (slot_bytes != TierLimits{}.held_bytes) {
      slots_.grow(slot_bytes);
    }
  }
  ~FilePlace() override {
    for (const std::span<std::byte> array : arrays_) {
      ::munmap(array.data(), whole_pages(array.size()));
    }
  }
  FilePlace(const FilePlace&) = delete;
  FilePlace& operator=(const FilePlace&) = delete;

  std::string name() const override { return "file:" + folder_; }

  std::span<std::byte> allocate(std::size_t bytes) override {
    const std::size_t pages = whole_pages(bytes);
    if (pages == 0) {
      return {};
    }
    // On a disk that is full by then a store to the mapping would end the process by SIGBUS, later
    // and without a word. So the file grows before it is mapped.
    const std::uint64_t begin = mapped_.end();
    mapped_.grow(begin + pages);
    void* const array = ::mmap(nullptr, pages, PROT_READ | PROT_WRITE, MAP_SHARED,
                               mapped_.descriptor(), static_cast<off_t>(begin));
    need(array != MAP_FAILED, "cannot map ", pages, " bytes of a file in \"", folder_,
         "\": ", std::strerror(errno));
    arrays_.push_back({static_cast<std::byte*>(array), bytes});
    return arrays_.back();
  }
  void fetch(std::span<std::byte> array) noexcept override {
    ::madvise(array.data(), whole_pages(array.size()), MADV_WILLNEED);
  }
  void release(std::span<std::byte> array) noexcept override {
    // Started now, so that the pages are clean by the time memory gets short and can be dropped
    // then.
    ::msync(array.data(), whole_pages(array.size()), MS_ASYNC);
    ::madvise(array.data(), whole_pages(array.size()), MADV_COLD);
  }

  void reserve(std::uint64_t end) override { slots_.grow(end); }
  void write(std::uint64_t offset, std::span<const std::byte> piece) override {
    write_all(offset, piece);
    // The disk begins at once, and what is behind leaves memory: the kernel would keep a whole
    // slot.
    ::sync_file_range(slots_.descriptor(), static_cast<off_t>(offset),
                      static_cast<off_t>(piece.size()), SYNC_FILE_RANGE_WRITE);
    unsettled_.push_back({.offset = offset, .bytes = piece.size()});
    unsettled_bytes_ += piece.size();
    while (unsettled_bytes_ > most_unsettled_bytes) {
      const Range oldest = unsettled_.front();
      unsettled_.pop_front();
      unsettled_bytes_ -= oldest.bytes;
      settle(oldest.offset, oldest.bytes);
    }
  }
  void read_ahead(std::uint64_t offset, std::size_t bytes) noexcept override {
    ::posix_fadvise(slots_.descriptor(), static_cast<off_t>(offset), static_cast<off_t>(bytes),
                    POSIX_FADV_WILLNEED);
  }
  void read(std::uint64_t offset, std::span<std::byte> piece) override {
    const Range all{.offset = offset, .bytes = piece.size()};
    while (!piece.empty()) {
      const ssize_t got =
          ::pread(slots_.descriptor(), piece.data(), piece.size(), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) {
        continue;
      }
      need(got >= 0, describe_failure("read from a file in", folder_, errno));
      need(got > 0, "a file in ", folder_, " ends at byte ", offset,
           ", before what was written to it; its disk has lost some: use another folder");
      piece = piece.subspan(static_cast<std::size_t>(got));
      offset += static_cast<std::uint64_t>(got);
    }
    drop(all);
  }
  void settle(std::uint64_t offset, std::size_t bytes) override {
    // Pages that are not yet on the disk cannot be dropped, so they are written first. Where a file
    // system does not know the call the kernel writes them when it likes to.
    const int error =
        ::sync_file_range(
            slots_.descriptor(), static_cast<off_t>(offset), static_cast<off_t>(bytes),
            SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER)
            ? errno
            : 0;
    need(error != EIO && error != ENOSPC && error != EDQUOT,
         describe_failure("write to a file in", folder_, error));
    drop({.offset = offset, .bytes = bytes});
  }

 private:
  struct Range {
    std::uint64_t offset = 0;
    std::size_t bytes = 0;
  };

  void write_all(std::uint64_t offset, std::span<const std::byte> piece) {
    const SizeLimitFails limit;
    while (!piece.empty()) {
      const ssize_t wrote =
          ::pwrite(slots_.descriptor(), piece.data(), piece.size(), static_cast<off_t>(offset));
      if (wrote < 0 && errno == EINTR) {
        continue;
      }
      need(wrote > 0, describe_failure("write to a file in", folder_, wrote == 0 ? ENOSPC : errno));
      piece = piece.subspan(static_cast<std::size_t>(wrote));
      offset += static_cast<std::uint64_t>(wrote);
    }
  }
  void drop(const Range& range) {
    ::posix_fadvise(slots_.descriptor(), static_cast<off_t>(range.offset),
                    static_cast<off_t>(range.bytes), POSIX_FADV_DONTNEED);
  }

  std::string folder_;
  NamelessFile mapped_, slots_;
  std::deque<Range> unsettled_;  // oldest first
  std::size_t unsettled_bytes_ = 0;
  std::vector<std::span<std::byte>> arrays_;
};

}  // namespace

extern const TierKind file_tier;
const TierKind file_tier = {
    .name = "file",
    .open = [](const std::string& place, const TierLimits& limits) -> std::unique_ptr<TierPlace> {
      require(!place.empty(),
              "the tier \"file\" needs a folder after a colon, as in "
              "file:/local/scratch");
      return std::make_unique<FilePlace>(place, limits.held_bytes);
    }};

}  // namespace sprat::io
