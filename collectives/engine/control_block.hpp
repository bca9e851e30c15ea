// What a rank shows its local peers of one communicator: which operation it is in, and how far.
//
// A control block lies in its rank's control segment, is written by that rank only, and starts
// zeroed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "collectives/plan/signature.hpp"
#include "comm/memory/segment.hpp"

namespace sprat::collectives {

/// One operation. Written before `announced` is raised: signature, marks, input and output, or
/// inlined bytes.
struct alignas(64) Slot {
  static constexpr std::size_t inline_bytes = 16 << 10;
  static constexpr std::size_t short_bytes = 32;

  /// Of an announcement; any of them may hold.
  enum Mark : std::uint32_t {
    inlined = 1,  ///< The input travels here: see ControlBlock::inlined_input().
    /// Peers may read where input and output lie: a first window's first signal would tell them no
    /// more, and is not given.
    opened = 2,
    in_place = 4,  ///< The output lies over the input. Not said of what is inlined.
  };

  // The first line holds all that a small operation needs, so that it costs one transfer; and all
  // that is needed to read an input.
  std::atomic<std::uint64_t> announced;  ///< Sequence number + 1 of the operation shown.
  Signature signature;
  std::byte payload[short_bytes];  ///< A short input that is inlined, or where the input lies.
  std::uint32_t prior_calls;       ///< Of the hash of the calls before it that completes_locally().
  std::uint32_t marks;

  bool is(Mark mark) const { return (marks & mark) != 0; }
  /// Where an input lies that is not inlined.
  comm::MemoryRef input() const {
    comm::MemoryRef ref;
    std::memcpy(&ref, payload, sizeof ref);
    return ref;
  }
  void show_input(const comm::MemoryRef& ref) { std::memcpy(payload, &ref, sizeof ref); }
  bool shows(const Signature& call, std::uint64_t prior_calls_hash) const {
    return signature == call && prior_calls == static_cast<std::uint32_t>(prior_calls_hash);
  }

  /// Window number << 32 | signals of the plan given in it. Inlined operations give none.
  alignas(64) std::atomic<std::uint64_t> signals;
  std::atomic<std::uint64_t> left;  ///< Windows of this operation after which it reads no peer.

  static std::uint64_t progress(std::uint64_t window, std::uint32_t signals) {
    return window << 32 | signals;
  }

  alignas(64) comm::MemoryRef output;
  comm::MemoryRef scratch;
  std::uint64_t scratch_half_bytes;    ///< Odd windows use the second half.
  std::uint64_t contributions_offset;  ///< Bytes from a half's begin to the plan's contributions.
};
static_assert(offsetof(Slot, signals) == 64);
static_assert(sizeof(comm::MemoryRef) <= Slot::short_bytes);
static_assert(offsetof(Slot, payload) % 8 == 0, "elements are aligned to their size");

struct ControlBlock {
  /// A rank that needs nothing of its peers runs ahead of them, a root of broadcasts for one, as
  /// far as there are slots for short inputs, or rooms for longer ones. Before one is written again
  /// all peers have completed the operation that it showed, so nobody reads it. Rooms are few: they
  /// are written in turn, and should stay in the caches.
  static constexpr std::uint64_t slots = 16, rooms = 4;

  /// Operations that are over here: this rank reads nothing of theirs any more.
  alignas(64) std::atomic<std::uint64_t> completed;
  /// Communicator + 1; 0 until its rank has made that. Control blocks are used again, and a peer
  /// may look once more after its owner has gone: another owner has completed all that this peer
  /// can mean.
  std::atomic<std::uint64_t> owner;
  /// An owner that has failed, and waits for nobody.
  static constexpr std::uint64_t left = ~std::uint64_t{0};
  /// Where inputs and outputs in private memory are staged; valid once an announcement is.
  alignas(64) comm::MemoryRef staging;
  /// Not 0 once the communicator has failed on this rank: set before a caller can have its buffers
  /// back. On a line that peers keep in their caches, for nothing else here changes.
  std::atomic<std::uint32_t> failed;
  Slot slot[slots];
  alignas(64) std::byte room[rooms][Slot::inline_bytes];

  /// Makes a used control block a new one, while peers may still look at `owner` and `completed`.
  void clear() {
    owner.store(0);
    completed.store(0);
    failed.store(0);  // of an owner that all its peers have left
    for (Slot& one : slot) {
      one.announced.store(0, std::memory_order_relaxed);
    }
  }

  Slot& of(std::uint64_t sequence) { return slot[sequence % slots]; }
  /// Where an input of so many bytes is inlined.
  std::byte* inlined_input(std::uint64_t sequence, std::size_t bytes) {
    return bytes <= Slot::short_bytes ? of(sequence).payload : room[sequence % rooms];
  }
  /// So many operations may be shown at once whose inputs are that long.
  static std::uint64_t depth(std::size_t input_bytes) {
    return input_bytes <= Slot::short_bytes ? slots : rooms;
  }
};

}  // namespace sprat::collectives
