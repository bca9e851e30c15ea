// Where arrays live that are not needed all the time: memory, or a file that stands in for it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "io/slot_space.hpp"
#include "io/tier_kind.hpp"

namespace sprat::io {

/// Something that is stored in a tier. No two stores of a tier have equal tickets.
struct Ticket {
  std::uint64_t number = 0;
  friend bool operator==(const Ticket&, const Ticket&) = default;
};

/// What a tier has done. Seconds are those that it was busy.
struct TierTraffic {
  std::size_t held_bytes = 0, most_held_bytes = 0;  ///< Slots now, and at most.
  std::size_t stored_bytes = 0, loaded_bytes = 0;
  double store_seconds = 0, load_seconds = 0;
};

/// What a tier keeps of one store. Its slot is [offset, offset + room).
struct StoredCopy {
  enum class State : std::uint8_t { storing, stored, loading, failed };
  std::string key;
  std::uint64_t offset = 0;
  std::size_t room = 0, bytes = 0;
  State state = State::storing;
  bool given_up = false;
  std::span<const std::byte> from;
  std::span<std::byte> into;
  std::vector<std::uint64_t> checksums;  ///< By piece.
  std::string error;                     ///< Of the last transfer.
};

/// Bytes outside of the memory that computes, in two ways. Arrays are memory to whoever uses them,
/// and live as long as the tier. What is stored is a copy, moved by a thread of the tier's while
/// others compute. One caller at a time.
class Tier final {
 public:
  explicit Tier(std::unique_ptr<TierPlace> place, TierLimits limits = {});
  /// Forgets everything. Transfers under way end first, or are given up.
  ~Tier();
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;

  std::string name() const { return place_->name(); }

  /// Zeroed, page aligned. Throws Error{unavailable} naming the place and what is missing.
  std::span<std::byte> allocate(std::size_t bytes) { return place_->allocate(bytes); }
  /// The array is used soon, so that it can be brought near meanwhile. Never fails.
  void fetch(std::span<std::byte> array) noexcept { place_->fetch(array); }
  /// The array is not used for a while: it may go back, and take no memory.
  void release(std::span<std::byte> array) noexcept { place_->release(array); }

  /// Starts a copy of `from`, which stays as it is until done() or forget(); `key` names it to
  /// people. nullopt if a limit leaves no room now: nothing has begun; try again when another
  /// transfer has ended, or something is forgotten. Throws Error{invalid_argument} if it is larger
  /// than all that may be held.
  std::optional<Ticket> store(std::span<const std::byte> from, std::string key);
  /// Starts to bring back what was stored; `into` is as long, and the tier's until done() or
  /// forget(). The store has ended well. False if the limit leaves no room now.
  bool load(Ticket ticket, std::span<std::byte> into);
  /// Whether the ticket's last transfer has ended. Throws Error{unavailable}, each time it is
  /// asked, if that failed: key, bytes, place, the system's reason and a remedy. A store that has
  /// failed can only be forgotten; a load may be tried again.
  bool done(Ticket ticket);
  /// done(), but waits for it at most so long.
  bool wait(Ticket ticket, std::chrono::milliseconds longest);
  /// The slot is free; a transfer under way is given up at its next piece. From then on nothing
  /// reads or writes the caller's memory.
  void forget(Ticket ticket) noexcept;

  TierTraffic traffic() const;
  /// The ticket's last transfer and the tier's rates so far, for who has waited too long: "the load
  /// of ... from ...".
  std::string describe(Ticket ticket) const;

 private:
  StoredCopy& at(Ticket ticket);
  const StoredCopy& at(Ticket ticket) const;
  bool ended(const StoredCopy& stored) const;
  void start_thread_once();
  void run();
  void transfer(std::uint64_t number);
  void copy_out(StoredCopy& stored);
  void copy_back(StoredCopy& stored);
  void settle(const StoredCopy& stored);
  bool given_up(const StoredCopy& stored) const;

  std::unique_ptr<TierPlace> place_;
  TierLimits limits_;

  mutable std::mutex mutex_;         // guards all below, but for what a running transfer reads
  std::condition_variable work_;     // a transfer was queued, or the tier ends
  std::condition_variable changed_;  // a transfer has ended
  std::map<std::uint64_t, StoredCopy> stored_;
  SlotSpace space_;
  std::deque<std::uint64_t> stores_, loads_;  // queued, oldest first
  std::uint64_t next_ = 1;
  std::uint64_t running_ = 0;   // ticket of the transfer that runs, or 0
  std::uint64_t reserved_ = 0;  // the worker's own: how far the place has room
  std::size_t storing_bytes_ = 0, loading_bytes_ = 0;
  TierTraffic traffic_;
  bool stopping_ = false;
  std::thread worker_;
};

/// "memory", "file:/local/scratch". Throws Error{invalid_argument} that lists what there is,
/// Error{unavailable} naming a place that cannot be used.
std::unique_ptr<Tier> open_tier(std::string_view name, const TierLimits& limits = {});
/// The same with the rows that only tests may name.
std::unique_ptr<Tier> open_any_tier(std::string_view name, const TierLimits& limits = {});

}  // namespace sprat::io
