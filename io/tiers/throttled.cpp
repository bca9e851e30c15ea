// Memory behind a link of a known rate, for tests of what waits for transfers: "throttled:20000000"
// moves so many bytes a second, whatever the machine.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <thread>

#include "comm/base/check.hpp"
#include "io/tier_kind.hpp"

namespace sprat::io {

extern const TierKind memory_tier;

namespace {

using Clock = std::chrono::steady_clock;

/// A token bucket without a store of tokens: bytes pass one after another, none before its time.
class ThrottledPlace final : public TierPlace {
 public:
  ThrottledPlace(std::unique_ptr<TierPlace> memory, double bytes_per_second)
      : memory_(std::move(memory)), bytes_per_second_(bytes_per_second) {}

  std::string name() const override { return "throttled"; }
  std::span<std::byte> allocate(std::size_t bytes) override { return memory_->allocate(bytes); }
  void fetch(std::span<std::byte> array) noexcept override { memory_->fetch(array); }
  void release(std::span<std::byte> array) noexcept override { memory_->release(array); }

  void reserve(std::uint64_t end) override { memory_->reserve(end); }
  void write(std::uint64_t offset, std::span<const std::byte> piece) override {
    memory_->write(offset, piece);
    pass(piece.size());
  }
  void read_ahead(std::uint64_t, std::size_t) noexcept override {}
  void read(std::uint64_t offset, std::span<std::byte> piece) override {
    memory_->read(offset, piece);
    pass(piece.size());
  }
  void settle(std::uint64_t offset, std::size_t bytes) override { memory_->settle(offset, bytes); }

 private:
  /// The link is what is slow here, so the thread that uses it sleeps; nobody could wake it sooner.
  void pass(std::size_t bytes) {
    const std::chrono::duration<double> takes(static_cast<double>(bytes) / bytes_per_second_);
    free_ = std::max(free_, Clock::now()) + std::chrono::duration_cast<Clock::duration>(takes);
    std::this_thread::sleep_until(free_);
  }

  std::unique_ptr<TierPlace> memory_;
  double bytes_per_second_;
  Clock::time_point free_{};  // when all that came so far has passed
};

}  // namespace

extern const TierKind throttled_tier;
const TierKind throttled_tier = {
    .name = "throttled",
    .for_tests = true,
    .open = [](const std::string& place, const TierLimits& limits) -> std::unique_ptr<TierPlace> {
      std::size_t rate = 0;
      const char* const end = place.data() + place.size();
      const auto parsed = std::from_chars(place.data(), end, rate);
      require(parsed.ec == std::errc() && parsed.ptr == end && rate > 0, "the tier \"throttled\" ",
              "needs bytes per second after a colon, as in throttled:20000000, not \"", place,
              "\"");
      return std::make_unique<ThrottledPlace>(memory_tier.open("", limits),
                                              static_cast<double>(rate));
    }};

}  // namespace sprat::io
