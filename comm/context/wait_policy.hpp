// How a Context reads the clock, gives its core away, sleeps and is woken.
//
// All of comm's and collectives' waiting goes through here, so that a simulation can bring its own
// clock and decide who runs next.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

namespace sprat::comm {

using Clock = std::chrono::steady_clock;

/// Rounds of driving that move nothing, before a wait is long enough to be worth the clock's price.
inline constexpr int unclocked_rounds = 256;

/// What a rank waits for, and so how long others may keep the core that it gives away.
enum class Awaited {
  announcement,  ///< Peers that come into a short call, which they do unless strangers keep them.
  work,          ///< Peers that may be in the midst of long copies and reductions.
  wire,          ///< The same, or what a look at costs a system call.
};

/// One rank's. Any thread; nothing throws.
class WaitPolicy {
 public:
  virtual ~WaitPolicy() = default;
  /// So many ranks share each core, this one among them. Said before anybody waits.
  virtual void share_cores(std::size_t) noexcept {}
  virtual Clock::time_point now() noexcept = 0;
  /// The same, some milliseconds ago at most, for a fraction of the price.
  virtual Clock::time_point recent() noexcept = 0;
  /// Rests after `idle_rounds` rounds of driving that moved nothing. False, at once, when it is
  /// time to sleep instead.
  virtual bool rest(int idle_rounds, Awaited awaited) noexcept = 0;
  /// Lets another thread run.
  virtual void yield() noexcept = 0;
  /// Sleeps until wake(word), at most `timeout`, which is below a second; not at all if the word
  /// differs from `expected`.
  virtual void sleep(std::atomic<std::uint32_t>& word, std::uint32_t expected,
                     std::chrono::nanoseconds timeout) noexcept = 0;
  /// Wakes all who sleep on world rank `owner`'s word. It lies in memory that processes share.
  virtual void wake(std::atomic<std::uint32_t>& word, int owner) noexcept = 0;
  /// Sleeps until one of these has what it asks for, and says which; at most `timeout`, which is
  /// below a second. May end sooner.
  virtual void poll(std::span<pollfd> descriptors, std::chrono::nanoseconds timeout) noexcept = 0;
  /// Acquires.
  virtual void lock(std::mutex& mutex) noexcept = 0;
  /// Between two touches of memory that ranks share: where a simulation may let others run.
  virtual void point() noexcept = 0;
};

/// The machine's clock, cores and futexes.
std::unique_ptr<WaitPolicy> real_wait_policy();

}  // namespace sprat::comm
