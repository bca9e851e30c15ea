// Slot plans by first fit, and the memory behind them.
#include "memory/arena.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

namespace sprat::memory {
namespace {

constexpr int no_slot = -1;

/// When a slot is taken. A pipeline has thousands of tapes, so lives are looked up and not compared
/// one by one.
class Occupancy {
 public:
  bool is_free(const Lives& lives) const {
    return std::ranges::none_of(lives, [&](const Life& life) {
      const auto next = taken_.upper_bound(life.from);
      const bool before = next != taken_.begin() && std::prev(next)->second > life.from;
      return before || (next != taken_.end() && next->first < life.to);
    });
  }
  void take(const Lives& lives) {
    for (const Life& life : lives) {
      taken_.emplace(life.from, life.to);
    }
  }

 private:
  std::map<std::size_t, std::size_t> taken_;  // from, to
};

}  // namespace

std::size_t SlotPlan::total() const { return std::reduce(bytes.begin(), bytes.end()); }

SlotPlan plan_slots(std::span<const Buffer> buffers) {
  std::vector<std::size_t> order;
  for (std::size_t buffer = 0; buffer < buffers.size(); ++buffer) {
    if (!buffers[buffer].lives.empty() && buffers[buffer].bytes > 0) {
      order.push_back(buffer);
    }
  }
  // Largest first: a slot is as long as the first buffer in it, so none that comes later makes it
  // longer. Stable, so that the plan does not depend on how a library sorts.
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return buffers[a].bytes > buffers[b].bytes;
  });
  SlotPlan plan{.slot = std::vector<int>(buffers.size(), no_slot), .bytes = {}};
  std::vector<Occupancy> slots;
  for (const std::size_t buffer : order) {
    const Lives& lives = buffers[buffer].lives;
    const auto found = std::find_if(slots.begin(), slots.end(),
                                    [&](const Occupancy& slot) { return slot.is_free(lives); });
    plan.slot[buffer] = static_cast<int>(found - slots.begin());
    if (found == slots.end()) {
      slots.emplace_back().take(lives);
      plan.bytes.push_back(buffers[buffer].bytes);
    } else {
      found->take(lives);
    }
  }
  return plan;
}

Lease::Lease(Arena* arena, int slot, Memory memory) noexcept
    : arena_(arena), slot_(slot), memory_(std::move(memory)) {}

Lease::Lease(Lease&& other) noexcept
    : arena_(std::exchange(other.arena_, nullptr)),
      slot_(other.slot_),
      memory_(std::move(other.memory_)) {}

Lease& Lease::operator=(Lease&& other) noexcept {
  Lease old(std::move(*this));
  arena_ = std::exchange(other.arena_, nullptr);
  slot_ = other.slot_;
  memory_ = std::move(other.memory_);
  return *this;
}

Lease::~Lease() {
  if (arena_ != nullptr) {
    arena_->give(slot_, std::move(memory_));
  }
}

Arena::Arena(SlotPlan plan, bool poison)
    : plan_(std::move(plan)),
      poison_(poison),
      free_(plan_.bytes.size()),
      lent_(plan_.bytes.size(), false) {}

Lease Arena::take(int buffer) {
  const int slot = plan_.slot[static_cast<std::size_t>(buffer)];
  const auto at = static_cast<std::size_t>(slot);
  // Somebody still holds what the plan says is free: the caller gets memory of its own, which is
  // counted and goes when it is given back.
  const bool beyond = lent_[at];
  Memory memory = beyond ? Memory() : std::move(free_[at]);
  if (memory.data() == nullptr) {
    memory = make(plan_.bytes[at]);
  }
  lent_[at] = true;
  return Lease(this, beyond ? no_slot : slot, std::move(memory));
}

Lease Arena::take_or_make(int buffer, std::size_t bytes) {
  const auto at = static_cast<std::size_t>(buffer);
  const bool planned = at < plan_.slot.size() && plan_.slot[at] != no_slot;
  return planned ? take(buffer) : Lease(this, no_slot, make(bytes));
}

Memory Arena::make(std::size_t bytes) {
  Memory memory(bytes);
  held_ += memory.bytes();
  high_water_ = std::max(high_water_, held_);
  return memory;
}

void Arena::give(int slot, Memory memory) {
  if (poison_) {
    std::memset(memory.data(), 0xff, memory.bytes());  // a NaN as f32, f16 and bf16
  }
  if (slot == no_slot) {
    held_ -= memory.bytes();
    return;
  }
  free_[static_cast<std::size_t>(slot)] = std::move(memory);
  lent_[static_cast<std::size_t>(slot)] = false;
}

}  // namespace sprat::memory
