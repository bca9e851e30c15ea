// How much decoding slows reductions, and how many threads may decode. Pure: what is observed, and
// the time, are arguments.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace sprat::io {

/// Compares reductions that ran while others decoded with equally large ones that did not.
class ReductionSlowdown {
 public:
  /// `busy` is how many threads decoded, on an average of its time, of `threads`. Between a quarter
  /// and a half of them it says nothing clear, and is left out.
  void add(std::chrono::nanoseconds took, std::size_t bytes, double busy, int threads) noexcept;
  /// 0.2: an all_reduce takes 20 % longer while others decode. Medians of the last reductions, by
  /// size; nothing before some of one size were seen both ways. May be below 0 by noise.
  std::optional<double> slowdown() const;
  /// Whether reductions were seen while nobody decoded: if not, decoding must pause for a moment.
  bool knows_quiet() const noexcept;

 private:
  static constexpr std::size_t sizes = 48;  // powers of two of bytes
  static constexpr std::size_t kept = 32;   // reductions of each size, each way
  struct Ring {
    std::array<float, kept> seconds{};
    std::uint32_t count = 0;

    void add(float value) noexcept { seconds[count++ % kept] = value; }
    std::optional<double> median() const;
  };
  std::vector<std::array<Ring, 2>> rings_ = std::vector<std::array<Ring, 2>>(sizes);
};

/// What a second was like.
struct CoreObservation {
  double seconds = 1;
  double reducing_seconds = 0;  ///< In which a reduction was under way.
  double consumer_wait = 0;     ///< Share of the time in which whoever computes waited for batches.
  std::optional<double> slowdown = {};
};

/// What is done about it.
struct CoreDecision {
  int decoders = 1;       ///< Threads that may decode.
  bool give_way = false;  ///< They run with a lower priority than all else.
  friend bool operator==(const CoreDecision&, const CoreDecision&) = default;
};

/// Lowers decoding while it costs more than it gives: first its priority, then a thread at a time,
/// at least one left. It goes up again once reductions are well or the consumer waits more than it
/// loses by slow reductions. Three seconds must agree, so that nothing swings.
class CoreGovernor {
 public:
  explicit CoreGovernor(int decode_threads);
  CoreDecision decide(const CoreObservation& observed);

 private:
  int threads_;
  CoreDecision decision_;
  int for_less_ = 0, for_more_ = 0;  // seconds in a row
};

/// When decoding pauses for a moment, so that a reduction is seen without it: a twentieth of a
/// second every ten, while nothing else shows it. One thread at a time.
class QuietProbe {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// Whether decoding pauses at `now`. `wanted`: reductions are seen, and none of them in quiet
  /// lately.
  bool pauses(Time now, bool wanted) noexcept;

 private:
  std::optional<Time> last_;
};

}  // namespace sprat::io
