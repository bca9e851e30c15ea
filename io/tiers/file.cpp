// The tier in files: arrays are mapped from a file that has no name, so a crash leaves nothing. The
// kernel writes them out while nobody looks, and what was released is the first that memory lacks.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "comm/base/check.hpp"
#include "io/durable.hpp"
#include "io/tier.hpp"

namespace sprat::io {
namespace {

std::size_t whole_pages(std::size_t bytes) {
  static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

class FileTier final : public Tier {
 public:
  explicit FileTier(const std::string& folder) : folder_(folder) {
    std::string path = folder + "/sprat-tier-XXXXXX";
    file_ = ::mkostemp(path.data(), O_CLOEXEC);
    need(file_ >= 0, "cannot make a file for a tier in \"", folder, "\": ", std::strerror(errno),
         "; name a folder that exists and can be written");
    ::unlink(path.c_str());  // the file lives as long as its descriptor and mappings
  }
  ~FileTier() override {
    for (const std::span<std::byte> array : arrays_) {
      ::munmap(array.data(), whole_pages(array.size()));
    }
    ::close(file_);
  }
  FileTier(const FileTier&) = delete;
  FileTier& operator=(const FileTier&) = delete;

  std::span<std::byte> allocate(std::size_t bytes) override {
    const std::size_t pages = whole_pages(bytes);
    if (pages == 0) {
      return {};
    }
    // Blocks of the disk are reserved now. On a full disk a store to the mapping would otherwise
    // end the process by SIGBUS, later and without a word.
    const SizeLimitFails limit;
    const int error = ::posix_fallocate(file_, static_cast<off_t>(end_), static_cast<off_t>(pages));
    need(error == 0, "cannot reserve ", pages, " bytes more in \"", folder_, "\", after ", end_,
         ": ", std::strerror(error), "; free some space there, or name another folder");
    void* const array =
        ::mmap(nullptr, pages, PROT_READ | PROT_WRITE, MAP_SHARED, file_, static_cast<off_t>(end_));
    need(array != MAP_FAILED, "cannot map ", pages, " bytes of a file in \"", folder_,
         "\": ", std::strerror(errno));
    end_ += pages;
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

 private:
  std::string folder_;
  int file_ = -1;
  std::size_t end_ = 0;  // bytes of the file that are in use
  std::vector<std::span<std::byte>> arrays_;
};

}  // namespace

extern const TierKind file_tier;
const TierKind file_tier = {.name = "file",
                            .open = [](const std::string& place) -> std::unique_ptr<Tier> {
                              require(!place.empty(),
                                      "the tier \"file\" needs a folder after a colon, as in "
                                      "file:/local/scratch");
                              return std::make_unique<FileTier>(place);
                            }};

}  // namespace sprat::io
