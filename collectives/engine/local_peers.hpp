// What a rank of a communicator shows the others on its host, and sees of them, on their control
// blocks.
//
// Every call is announced here, whether it is eager or runs a plan: its slot is opened, what
// belongs to the call is written into it, and then it is announced.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "collectives/engine/control_block.hpp"
#include "collectives/engine/membership.hpp"
#include "collectives/plan/problem.hpp"
#include "collectives/plan/signature.hpp"
#include "comm/context/context.hpp"

namespace sprat::collectives {

/// Of one communicator. Its context's token is held. Peers are named by communicator ranks.
class LocalPeers final {
 public:
  /// Claims this rank's control block. `context` and `membership` outlive it.
  LocalPeers(comm::Context& context, const Membership& membership, const Grouping& grouping);

  /// Ascending, without this rank.
  std::span<const int> ranks() const { return ranks_; }
  /// The same as world ranks.
  std::span<const int> world_ranks() const { return world_ranks_; }
  ControlBlock& mine() { return *control_blocks_[rank_]; }
  ControlBlock& control_block(int rank) const { return *control_blocks_[rank]; }
  const Slot& slot(int rank, std::uint64_t sequence) const {
    return control_block(rank).of(sequence);
  }
  /// Whether all have come so far, or have left the communicator or the job; who has not even made
  /// it yet is to come. May be asked when this is gone, as long as the context is there.
  std::function<bool()> all_completed_or_left(std::uint64_t calls) const;
  /// Of a communicator that has failed: this rank reads nothing of its peers any more.
  void leave() { mine().owner.store(ControlBlock::left, std::memory_order_release); }
  /// The communicator has failed on that peer, so its memory may hold anything by now. What was
  /// read of it before this returned false was good.
  bool has_failed(int rank) const {
    return comm::FailureState::is_shown(control_block(rank).failed);
  }

  // --- announcing ---
  /// No peer is so far behind that it may read what this rank shows of a call long ago, where a
  /// call with so long an input would lie. Where one has been, this rank waits until it has caught
  /// up by half: to look after each of its calls would take from it, call after call, the line in
  /// which it counts them.
  bool may_open(std::uint64_t sequence, std::size_t input_bytes) {
    const std::uint64_t depth = ControlBlock::depth(input_bytes);
    return sequence < depth || completed_by_all_ > sequence - depth ||
           have_completed(sequence - depth / 2);
  }
  /// World ranks of peers because of whom it is not so.
  std::vector<int> behind(std::uint64_t sequence, std::size_t input_bytes) const;
  /// This rank's slot for a call that it may_open(), in which it has signalled nothing yet.
  Slot& open(std::uint64_t sequence) {
    Slot& slot = mine().of(sequence);
    slot.signals.store(0, std::memory_order_relaxed);
    slot.left.store(0, std::memory_order_relaxed);
    return slot;
  }
  /// All of the slot is written: peers may see it.
  void announce(Slot& slot, std::uint64_t sequence, const Signature& signature,
                std::uint64_t prior_calls_hash) {
    slot.signature = signature;
    slot.prior_calls = static_cast<std::uint32_t>(prior_calls_hash);
    slot.announced.store(sequence + 1, std::memory_order_release);
    ring();
  }
  void ring() { context_.ring(world_ranks_); }
  void complete(std::uint64_t sequence) {
    mine().completed.store(sequence + 1, std::memory_order_release);
  }

  // --- whether peers have come, of any call ---
  bool has_called(int rank, std::uint64_t sequence) const {
    return slot(rank, sequence).announced.load(std::memory_order_acquire) == sequence + 1;
  }
  /// It has announced just that.
  bool has_announced(int rank, std::uint64_t sequence, const Signature& signature,
                     std::uint64_t prior_calls_hash) const {
    return has_called(rank, sequence) && slot(rank, sequence).shows(signature, prior_calls_hash);
  }
  /// All have.
  bool all_announced(std::uint64_t sequence, const Signature& signature,
                     std::uint64_t prior_calls_hash);
  /// World ranks that have not called it.
  std::vector<int> late(std::uint64_t sequence) const;
  /// Ranks that have not left so many windows of it yet, or not called it.
  std::vector<int> not_left(std::uint64_t sequence, std::size_t windows) const;
  /// No lower rank of this host has called it and waits.
  bool lowest_that_waits(std::uint64_t sequence) const;

  // --- the same of the call that this rank carries out ---
  void follow(std::uint64_t sequence, const Signature& signature, std::uint64_t prior_calls_hash);
  /// True once the peer is in the same call. If it called another it never becomes true, and
  /// differs() does: control blocks hold no more than a hash of what must agree.
  bool announced(int rank) { return seen_[rank] != 0 || look(rank); }
  bool all_announced();
  bool differs() const { return differs_; }
  /// It has announced, and signalled so often in this window.
  bool signalled(int rank, std::size_t window, std::uint32_t needs) {
    return announced(rank) && has_signalled(rank, window, needs);
  }
  /// Of a rank that has announced.
  bool has_signalled(int rank, std::size_t window, std::uint32_t needs) const;
  /// All have announced, and left so many windows.
  bool all_left(std::size_t windows);
  /// Everybody's input travelled in its announcement.
  bool all_inlined() const;

 private:
  bool look(int rank);
  bool is_member(int rank) const;
  // Acquiring: what the peer has read of those calls it has read before this rank writes there.
  std::uint64_t completed(int rank) const {
    return control_block(rank).completed.load(std::memory_order_acquire);
  }
  bool have_completed(std::uint64_t sequence);
  // Who has announced a call has completed those before it.
  void note_announced_by_all(std::uint64_t sequence) {
    completed_by_all_ = std::max(completed_by_all_, sequence);
  }

  comm::Context& context_;
  const int rank_;
  std::vector<ControlBlock*> control_blocks_;  ///< By rank; null for ranks of other hosts.
  std::vector<int> ranks_, world_ranks_;
  std::vector<char> seen_;              ///< By rank: announced, and its signature agrees.
  std::uint64_t completed_by_all_ = 0;  ///< So many calls, if not more: as when last looked at.
  std::uint64_t sequence_ = 0;
  Signature signature_;
  std::uint64_t prior_calls_hash_ = 0;
  bool differs_ = false;
};

}  // namespace sprat::collectives
