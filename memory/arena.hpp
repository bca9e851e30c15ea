// Memory that buffers borrow: which share a slot is planned, so that the total is known beforehand.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "memory/buffers.hpp"
#include "sprat/buffer.hpp"

namespace sprat::memory {

/// Where buffers lie that are not all needed at once.
struct SlotPlan {
  std::vector<int> slot;           ///< By buffer; -1 if it needs none.
  std::vector<std::size_t> bytes;  ///< By slot: those of the largest buffer in it.
  std::size_t total() const;
};
/// Puts buffers that are never alive together into one slot, the largest first (first fit).
SlotPlan plan_slots(std::span<const Buffer> buffers);

class Arena;

/// A slot that is lent; given back when this goes.
class Lease {
 public:
  Lease() = default;
  Lease(Arena* arena, int slot, Memory memory) noexcept;
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease();

  explicit operator bool() const { return arena_ != nullptr; }
  void* data() const { return memory_.data(); }

 private:
  Arena* arena_ = nullptr;
  int slot_ = -1;
  Memory memory_;
};

/// The memory of a plan. It is made when first asked for, and kept: peers map it, and making and
/// mapping anew is slow. One thread at a time.
class Arena {
 public:
  /// `poison`: fills what is given back with NaNs, to show who still reads it.
  explicit Arena(SlotPlan plan, bool poison = false);

  /// The buffer's slot; contents are left over from earlier use. If a caller holds buffers longer
  /// than the plan knows, memory beyond the plan.
  Lease take(int buffer);
  /// The same; a buffer that the plan has no slot for gets memory of so many bytes beyond it.
  Lease take_or_make(int buffer, std::size_t bytes);

  std::size_t held() const { return held_; }
  std::size_t high_water() const { return high_water_; }

 private:
  friend class Lease;
  Memory make(std::size_t bytes);
  void give(int slot, Memory memory);

  SlotPlan plan_;
  bool poison_;
  std::vector<Memory> free_;  // by slot; no data while lent or not yet made
  std::vector<bool> lent_;
  std::size_t held_ = 0, high_water_ = 0;
};

}  // namespace sprat::memory
