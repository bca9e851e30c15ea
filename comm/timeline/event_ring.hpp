// The last events of a rank, from any of its threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/timeline/event.hpp"

namespace sprat::comm::timeline {

/// All of its memory is taken, and touched, when it is made.
class EventRing final : public Tracer {
 public:
  static constexpr std::size_t default_room = std::size_t{1} << 16;

  /// `rank` makes unique() so.
  explicit EventRing(int rank, std::size_t room = default_room);

  void add(const TraceEvent& event) noexcept override;
  std::uint64_t unique() noexcept override;

  /// In the order in which they were added. Others may add meanwhile.
  std::vector<RecordedEvent> events() const;
  /// Ever added.
  std::uint64_t added() const noexcept { return next_.load(std::memory_order_relaxed); }

 private:
  struct Slot {
    /// Whoever sets it has the slot to itself: acquire and release make what is in it whole.
    std::atomic<bool> busy = false;
    std::uint64_t number = 0;  ///< Of the event in it, from 1 on; 0: none.
    RecordedEvent event;
  };

  const std::uint64_t first_unique_;
  const std::size_t room_;
  std::unique_ptr<Slot[]> slots_;
  /// Events so far. Relaxed: it only deals out slots.
  std::atomic<std::uint64_t> next_ = 0;
  std::atomic<std::uint64_t> uniques_ = 0;
};

}  // namespace sprat::comm::timeline
