// The tier that is memory already.
#include <cstring>
#include <new>
#include <vector>

#include "comm/base/check.hpp"
#include "io/tier.hpp"

namespace sprat::io {
namespace {

constexpr std::size_t page = 4096;

struct FreeArray {
  void operator()(std::byte* array) const { ::operator delete(array, std::align_val_t{page}); }
};

class MemoryTier final : public Tier {
 public:
  std::span<std::byte> allocate(std::size_t bytes) override {
    void* const array = ::operator new(bytes, std::align_val_t{page}, std::nothrow);
    need(array != nullptr, "cannot allocate ", bytes, " bytes of memory for a tier");
    arrays_.emplace_back(static_cast<std::byte*>(array));
    std::memset(array, 0, bytes);
    return {arrays_.back().get(), bytes};
  }
  void fetch(std::span<std::byte>) noexcept override {}
  void release(std::span<std::byte>) noexcept override {}

 private:
  std::vector<std::unique_ptr<std::byte, FreeArray>> arrays_;
};

}  // namespace

extern const TierKind memory_tier;
const TierKind memory_tier = {
    .name = "memory", .open = [](const std::string& place) -> std::unique_ptr<Tier> {
      require(place.empty(), "the tier \"memory\" has no place, but \"", place, "\" was given");
      return std::make_unique<MemoryTier>();
    }};

}  // namespace sprat::io
