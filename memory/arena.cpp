// Slot plans by first fit, and the memory behind them.
#include "memory/arena.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace sprat::fsdp {

std::size_t SlotPlan::total() const { return std::reduce(bytes.begin(), bytes.end()); }

SlotPlan plan_slots(const Overlaps& overlaps, std::span<const std::size_t> bytes) {
  std::vector<std::size_t> units;
  for (std::size_t unit = 0; unit < overlaps.units(); ++unit) {
    if (overlaps.used(unit) && bytes[unit] > 0) {
      units.push_back(unit);
    }
  }
  // Largest first: a slot is as long as the first unit in it, so none that comes later makes it
  // longer. Stable, so that the plan does not depend on how a library sorts.
  std::stable_sort(units.begin(), units.end(),
                   [&](std::size_t a, std::size_t b) { return bytes[a] > bytes[b]; });
  SlotPlan plan{.slot = std::vector<int>(overlaps.units(), -1), .bytes = {}};
  std::vector<std::vector<std::size_t>> inside;  // by slot
  for (const std::size_t unit : units) {
    const auto fits = [&](const std::vector<std::size_t>& others) {
      return std::ranges::none_of(
          others, [&](std::size_t other) { return overlaps.together(unit, other); });
    };
    const auto found = std::find_if(inside.begin(), inside.end(), fits);
    plan.slot[unit] = static_cast<int>(found - inside.begin());
    if (found == inside.end()) {
      inside.push_back({unit});
      plan.bytes.push_back(bytes[unit]);
    } else {
      found->push_back(unit);
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

Lease Arena::take(int unit) {
  const int slot = plan_.slot[static_cast<std::size_t>(unit)];
  const auto at = static_cast<std::size_t>(slot);
  // Somebody still holds what the plan says is free: the caller gets memory of its own, which is
  // counted and goes when it is given back.
  const bool beyond = lent_[at];
  Memory memory = beyond ? Memory() : std::move(free_[at]);
  if (memory.data() == nullptr) {
    memory = Memory(plan_.bytes[at]);
    held_ += memory.bytes();
    high_water_ = std::max(high_water_, held_);
  }
  lent_[at] = true;
  return Lease(this, beyond ? -1 : slot, std::move(memory));
}

void Arena::give(int slot, Memory memory) {
  if (poison_) {
    std::memset(memory.data(), 0xff, memory.bytes());  // a NaN as f32, f16 and bf16
  }
  if (slot < 0) {
    held_ -= memory.bytes();
    return;
  }
  free_[static_cast<std::size_t>(slot)] = std::move(memory);
  lent_[static_cast<std::size_t>(slot)] = false;
}

}  // namespace sprat::fsdp
