// One mapping for all reads: what is taken again has its pages already, where new memory would take
// a fault for each, which is slower than to read them from the page cache.
#include "io/readers/read_memory.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "comm/base/check.hpp"
#include "io/slot_space.hpp"

namespace sprat::io {
namespace {

constexpr std::size_t slot_alignment = 4096;
constexpr std::size_t huge_page = std::size_t{2} << 20;

std::size_t up_to(std::size_t bytes, std::size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

class PlainReadMemory final : public ReadMemory {
 public:
  explicit PlainReadMemory(std::uint64_t bytes)
      : most_(bytes), length_(up_to(2 * bytes, huge_page)), space_(length_) {
    require(bytes <= std::uint64_t{1} << 46, "no machine has ", bytes, " bytes for reads");
    // Begun at a huge page, so the mapping is one longer.
    mapped_ = ::mmap(nullptr, length_ + huge_page, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    need(mapped_ != MAP_FAILED, "cannot reserve ", length_,
         " bytes of addresses for reads: ", std::strerror(errno), "; choose a smaller budget");
    const auto address = reinterpret_cast<std::uintptr_t>(mapped_);
    begin_ = static_cast<std::byte*>(mapped_) + (up_to(address, huge_page) - address);
    ::madvise(begin_, length_, MADV_HUGEPAGE);
  }
  ~PlainReadMemory() override { ::munmap(mapped_, length_ + huge_page); }
  PlainReadMemory(const PlainReadMemory&) = delete;
  PlainReadMemory& operator=(const PlainReadMemory&) = delete;

  std::span<std::byte> take(std::size_t bytes) override {
    const std::size_t room = up_to(bytes, slot_alignment);
    if (room > most_ - taken_) {
      return {};
    }
    const std::optional<std::uint64_t> offset = space_.take(room);
    if (!offset) {
      return {};
    }
    taken_ += room;
    return {begin_ + *offset, room};
  }
  void give(std::span<std::byte> memory) override {
    space_.give(static_cast<std::uint64_t>(memory.data() - begin_), memory.size());
    taken_ -= memory.size();
  }

 private:
  std::uint64_t most_;
  std::size_t length_;
  SlotSpace space_;
  void* mapped_ = nullptr;
  std::byte* begin_ = nullptr;
  std::uint64_t taken_ = 0;
};

}  // namespace

std::unique_ptr<ReadMemory> plain_read_memory(std::uint64_t bytes) {
  return std::make_unique<PlainReadMemory>(bytes);
}

}  // namespace sprat::io
