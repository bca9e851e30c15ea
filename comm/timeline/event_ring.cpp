#include "comm/timeline/event_ring.hpp"

#include <algorithm>
#include <utility>

namespace sprat::comm::timeline {
namespace {

/// A rank makes fewer numbers than that.
constexpr int bits_of_uniques = 40;

}  // namespace

EventRing::EventRing(int rank, std::size_t room)
    : first_unique_(static_cast<std::uint64_t>(rank + 1) << bits_of_uniques),
      room_(room),
      slots_(std::make_unique<Slot[]>(room)) {}

// A slot is taken by one exchange and never waited for. Two events meet in one only if the ring
// went around between the two lines of another thread, or while it is read: the later one is
// dropped. It was dealt a number, by which a ring that has gone around counts what it lacks; what
// comes while one is read that has not is later than what is told.
void EventRing::add(const TraceEvent& event) noexcept {
  const std::uint64_t number = next_.fetch_add(1, std::memory_order_relaxed) + 1;
  Slot& slot = slots_[(number - 1) % room_];
  if (slot.busy.exchange(true, std::memory_order_acquire)) {
    return;
  }
  if (slot.number < number) {
    slot.event = recorded(event);
    slot.number = number;
  }
  slot.busy.store(false, std::memory_order_release);
}

std::uint64_t EventRing::unique() noexcept {
  return first_unique_ + uniques_.fetch_add(1, std::memory_order_relaxed);
}

std::vector<RecordedEvent> EventRing::events() const {
  std::vector<std::pair<std::uint64_t, RecordedEvent>> found;
  for (std::size_t i = 0; i < room_; ++i) {
    Slot& slot = slots_[i];
    if (slot.busy.exchange(true, std::memory_order_acquire)) {
      continue;  // being written: its event is not over for this reader
    }
    if (slot.number != 0) {
      found.emplace_back(slot.number, slot.event);
    }
    slot.busy.store(false, std::memory_order_release);
  }
  std::ranges::sort(found, {}, [](const auto& one) { return one.first; });
  std::vector<RecordedEvent> events;
  events.reserve(found.size());
  for (const auto& one : found) {
    events.push_back(one.second);
  }
  return events;
}

}  // namespace sprat::comm::timeline
