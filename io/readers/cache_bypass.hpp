// Whether long reads of what the page cache has not are quicker past it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

namespace sprat::io {

struct CacheBypassLimits {
  /// Of reads by one way, by which the way is judged.
  std::uint64_t window_bytes = std::uint64_t{64} << 20;
  /// Before a window: reads that were begun by the other way end meanwhile.
  std::uint64_t settling_bytes = std::uint64_t{32} << 20;
  /// Windows between looks at the other way: so many behind a change, four times as many behind
  /// each look that changed nothing, up to trial_windows() of them.
  std::uint32_t least_between_trials = 16;
  /// Past the cache, one of so many reads goes through it all the same.
  std::uint32_t kept_one_of = 8;
};

/// Windows by the better way for each by the other one: 16, or as many as it takes for the time
/// that the trial loses to be a fiftieth of all, but at most 256. Rates in bytes a second. Pure.
std::uint32_t trial_windows(double better_rate, double other_rate) noexcept;

/// Reads past the page cache cost no copy and no new pages: a fast disk gives more by them than one
/// or two cores can copy. What they bring is not in the cache in the next epoch, so they are worth
/// it only where they are quicker by much. Which is quicker depends on disk, cores and what else
/// computes, so both ways are tried, and the better one is kept for some time. A value, without a
/// clock.
class CacheBypass final {
 public:
  using Moment = std::chrono::nanoseconds;  ///< Since some beginning.
  enum class Way : std::uint8_t { through, past };

  explicit CacheBypass(const CacheBypassLimits& limits = {}) : limits_(limits) {}

  /// By which way the next long read goes.
  Way next() noexcept;
  /// One of those reads has ended.
  void ended(std::uint64_t bytes, Moment now) noexcept;
  /// Storage had less to do than it can: this time says nothing of the ways.
  void idles() noexcept;
  /// Reads past the cache fail here: there are no more of them.
  void refuse() noexcept;
  bool refused() const noexcept { return refused_; }

 private:
  static constexpr std::size_t index(Way way) { return way == Way::through ? 0 : 1; }
  void judge(double rate) noexcept;

  CacheBypassLimits limits_;
  Way way_ = Way::through;     // of the reads that start now
  Way better_ = Way::through;  // as far as is known
  bool refused_ = false;
  // Bytes a second of a way's last two windows; 0: not known. The quicker one counts, since a
  // hiccup of disk or cores only ever takes time.
  struct Rates {
    double last = 0, before = 0;
    double known() const { return last > before ? last : before; }
  };
  std::array<Rates, 2> rates_{};
  std::uint64_t settled_bytes_ = 0, bytes_ = 0;
  Moment begin_{};
  std::uint32_t windows_ = 0;         // in a row by this way
  std::uint32_t between_trials_ = 1;  // behind the first look, which may have met a hiccup, four
  std::uint32_t past_ = 0;            // reads, since one was kept
};

}  // namespace sprat::io
