// What a rank shows its local peers of one communicator: which operation it is in, and how far.
//
// A control block lies in its rank's control segment, is written by that rank only, and starts
// zeroed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collectives/plan/signature.hpp"
#include "comm/memory/segment.hpp"

namespace sprat::collectives {

/// One operation. Written before `announced` is raised: signature, input, output, inlined bytes.
struct alignas(64) Slot {
  static constexpr std::size_t inline_bytes = 16 << 10;
  static constexpr std::size_t short_bytes = 32;

  // The first line holds all that a small operation needs, so that it costs one transfer.
  std::atomic<std::uint64_t> announced;  ///< Sequence number + 1 of the operation shown.
  Signature signature;
  std::byte short_payload[short_bytes];
  std::uint32_t inlined;  ///< The input lies in short_payload, if it is that short, or in payload.

  /// Window number << 32 | signals of the plan given in it. Inlined operations give none.
  alignas(64) std::atomic<std::uint64_t> signals;
  std::atomic<std::uint64_t> left;  ///< Windows of this operation after which it reads no peer.

  static std::uint64_t progress(std::uint64_t window, std::uint32_t signals) {
    return window << 32 | signals;
  }

  alignas(64) comm::MemoryRef input;
  comm::MemoryRef output;
  comm::MemoryRef scratch;
  std::uint64_t scratch_half_bytes;    ///< Odd windows use the second half.
  std::uint64_t contributions_offset;  ///< Bytes from a half's begin to the plan's contributions.
  std::uint32_t in_place;              ///< The output lies over the input.

  alignas(64) std::byte payload[inline_bytes];
};
static_assert(offsetof(Slot, signals) == 64);
static_assert(offsetof(Slot, short_payload) % 8 == 0, "elements are aligned to their size");

struct ControlBlock {
  /// An operation ends only when every local peer has announced it, so a rank is at most one ahead
  /// of them; and who has announced an operation has completed the one before. So when a slot is
  /// written again, no peer reads it.
  static constexpr std::uint64_t slots = 2;

  /// Operations that are over here: this rank reads nothing of theirs any more.
  alignas(64) std::atomic<std::uint64_t> completed;
  /// Communicator + 1. Control blocks are used again, and a peer may look once more after its owner
  /// has gone: another owner, or 0, has completed all that this peer can mean.
  std::atomic<std::uint64_t> owner;
  /// Where inputs and outputs in private memory are staged; valid once an announcement is.
  alignas(64) comm::MemoryRef staging;
  Slot slot[slots];

  /// Makes a used control block a new one, while peers may still look at `owner` and `completed`.
  void clear() {
    owner.store(0);
    completed.store(0);
    for (Slot& one : slot) {
      one.announced.store(0, std::memory_order_relaxed);
    }
  }

  Slot& of(std::uint64_t sequence) { return slot[sequence % slots]; }
};

}  // namespace sprat::collectives
