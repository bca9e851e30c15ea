// The tier that is memory already.
#include <new>
#include <vector>

#include "comm/base/aligned.hpp"
#include "comm/base/check.hpp"
#include "io/tier.hpp"

namespace sprat::io {
namespace {

class MemoryTier final : public Tier {
 public:
  std::span<std::byte> allocate(std::size_t bytes) override {
    try {
      return arrays_.emplace_back(bytes);
    } catch (const std::exception&) {
      throw Error(ErrorCode::unavailable,
                  text("cannot allocate ", bytes, " bytes of memory for a tier"));
    }
  }
  void fetch(std::span<std::byte>) noexcept override {}
  void release(std::span<std::byte>) noexcept override {}

 private:
  std::vector<PageAlignedVector<std::byte>> arrays_;
};

}  // namespace

extern const TierKind memory_tier;
const TierKind memory_tier = {
    .name = "memory", .open = [](const std::string& place) -> std::unique_ptr<Tier> {
      require(place.empty(), "the tier \"memory\" has no place, but \"", place, "\" was given");
      return std::make_unique<MemoryTier>();
    }};

}  // namespace sprat::io
