// The tier that is memory already.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <new>
#include <vector>

#include "comm/base/aligned.hpp"
#include "comm/base/check.hpp"
#include "comm/base/memory_room.hpp"
#include "io/tier_kind.hpp"

namespace sprat::io {
namespace {

PageAlignedVector<std::byte> zeros(std::size_t bytes) {
  comm::need_memory(bytes, "memory for a tier");
  try {
    return PageAlignedVector<std::byte>(bytes);
  } catch (const std::exception&) {
    throw Error(ErrorCode::unavailable,
                text("cannot allocate ", bytes, " bytes of memory for a tier"));
  }
}

class MemoryPlace final : public TierPlace {
 public:
  std::string name() const override { return "memory"; }

  std::span<std::byte> allocate(std::size_t bytes) override {
    return arrays_.emplace_back(zeros(bytes));
  }
  void fetch(std::span<std::byte>) noexcept override {}
  void release(std::span<std::byte>) noexcept override {}

  void reserve(std::uint64_t end) override {
    chunks_.emplace(end_, zeros(end - end_));
    end_ = end;
  }
  void write(std::uint64_t offset, std::span<const std::byte> piece) override {
    for (std::size_t done = 0; done < piece.size();) {
      const std::span<std::byte> place = at(offset + done, piece.size() - done);
      std::memcpy(place.data(), piece.data() + done, place.size());
      done += place.size();
    }
  }
  void read(std::uint64_t offset, std::span<std::byte> piece) override {
    for (std::size_t done = 0; done < piece.size();) {
      const std::span<std::byte> place = at(offset + done, piece.size() - done);
      std::memcpy(piece.data() + done, place.data(), place.size());
      done += place.size();
    }
  }
  void read_ahead(std::uint64_t, std::size_t) noexcept override {}
  void settle(std::uint64_t, std::size_t) override {}

 private:
  /// Memory of the slots from `offset` on: `most` bytes, or fewer where a chunk ends. Slots that
  /// were freed side by side become one, which may lie in two chunks.
  std::span<std::byte> at(std::uint64_t offset, std::size_t most) {
    auto& [begin, chunk] = *std::prev(chunks_.upper_bound(offset));
    const std::size_t within = offset - begin;
    return std::span(chunk).subspan(within, std::min(most, chunk.size() - within));
  }

  std::vector<PageAlignedVector<std::byte>> arrays_;
  std::map<std::uint64_t, PageAlignedVector<std::byte>> chunks_;  // by where they begin
  std::uint64_t end_ = 0;
};

}  // namespace

extern const TierKind memory_tier;
const TierKind memory_tier = {
    .name = "memory",
    .open = [](const std::string& place, const TierLimits&) -> std::unique_ptr<TierPlace> {
      require(place.empty(), "the tier \"memory\" has no place, but \"", place, "\" was given");
      return std::make_unique<MemoryPlace>();
    }};

}  // namespace sprat::io
