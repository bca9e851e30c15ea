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

/// One operation. Written before `announced` is raised: signature, marks, input and output, or
/// inlined bytes.
struct alignas(64) Slot {
  static constexpr std::size_t inline_bytes = 16 << 10;
  /// A KiB fits. Slots are 18 lines apart, so that their first ones spread over a cache's sets.
  static constexpr std::size_t short_bytes = 1056;

  /// Of an announcement; any of them may hold.
  enum Mark : std::uint32_t {
    inlined = 1,  ///< The input travels here: see ControlBlock::inlined_input().
    /// Peers may read where input and output lie: a first window's first signal would tell them no
    /// more, and is not given.
    opened = 2,
    in_place = 4,  ///< The output lies over the input. Not said of what is inlined.
  };
  /// Of an operation whose input is not inlined.
  struct Places {
    comm::MemoryRef input, output;
  };

  // A line that a small operation's peers never read.
  /// Window number << 32 | signals of the plan given in it. Inlined operations give none.
  std::atomic<std::uint64_t> signals;
  std::atomic<std::uint64_t> left;     ///< Windows of this operation after which it reads no peer.
  std::uint64_t scratch_half_bytes;    ///< Odd windows use the second half.
  std::uint64_t contributions_offset;  ///< Bytes from a half's begin to the plan's contributions.
  comm::MemoryRef scratch;

  // The next holds all that a small operation needs, so that it costs one transfer; and all that is
  // needed to read an input. A longer input goes on in the lines behind it, which are fetched while
  // this one is read.
  alignas(64) std::atomic<std::uint64_t> announced;  ///< Sequence number + 1 of what is shown.
  Signature signature;
  std::uint32_t prior_calls;  ///< Of the hash of the calls before it that completes_locally().
  std::uint32_t marks;
  union {
    std::byte payload[short_bytes];  ///< An input that is inlined and short,
    Places places;                   ///< or where input and output lie.
  };

  bool is(Mark mark) const { return (marks & mark) != 0; }
  bool shows(const Signature& call, std::uint64_t prior_calls_hash) const {
    return signature == call && prior_calls == static_cast<std::uint32_t>(prior_calls_hash);
  }
  static std::uint64_t progress(std::uint64_t window, std::uint32_t signals) {
    return window << 32 | signals;
  }
  /// Its owner will soon write it, with an input of so many bytes: takes what a small operation's
  /// peers read from those who have read it, while there is time.
  void prefetch_to_write(std::size_t input_bytes) {
    auto* line = reinterpret_cast<std::byte*>(&announced);
    const std::byte* const end = payload + (input_bytes <= short_bytes ? input_bytes : 0);
    do {
#if defined(__x86_64__)
      asm volatile("prefetchw %0" : : "m"(*line));  // the builtin fetches it to read
#else
      __builtin_prefetch(line, 1);
#endif
      line += 64;
    } while (line < end);
  }
};
static_assert(offsetof(Slot, announced) == 64);
static_assert(offsetof(Slot, payload) % 8 == 0, "elements are aligned to their size");
static_assert(offsetof(Slot, places) + sizeof(comm::MemoryRef) == 128, "an input's place");

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
