#include "collectives/engine/local_peers.hpp"

#include <algorithm>
#include <limits>

namespace sprat::collectives {

LocalPeers::LocalPeers(comm::Context& context, const Membership& membership,
                       const Grouping& grouping)
    : context_(context),
      rank_(membership.rank),
      control_blocks_(membership.world_ranks.size()),
      seen_(membership.world_ranks.size()) {
  for (int rank = 0; rank < static_cast<int>(control_blocks_.size()); ++rank) {
    if (!grouping.together(rank, rank_)) {
      continue;
    }
    const int world = membership.world_ranks[rank];
    control_blocks_[rank] = reinterpret_cast<ControlBlock*>(
        context.peer_control(world, membership.control_blocks[rank]));
    if (rank != rank_) {
      ranks_.push_back(rank);
      world_ranks_.push_back(world);
    }
  }
  // From here on peers take what the control block says as said by this communicator.
  mine().owner.store(membership.id + 1, std::memory_order_release);
}

// The owner is the same word on every rank.
bool LocalPeers::is_member(int rank) const {
  return control_block(rank).owner.load(std::memory_order_acquire) ==
         control_block(rank_).owner.load(std::memory_order_relaxed);
}

// A peer's control block was cleared before this rank heard where it lies. So while its owner is
// nobody, and it has not been seen to be this communicator's, the peer is still making it: a root
// may have broadcast to it and be gone, and the peer comes for what it left. A peer that never
// makes it, since what it was made of failed meanwhile, costs a control block: it may not have
// heard yet.
std::function<bool()> LocalPeers::all_completed_or_left(std::uint64_t calls) const {
  struct Peer {
    const ControlBlock* block;
    int world_rank;
    bool seen = false;
  };
  std::vector<Peer> peers;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    peers.push_back({control_blocks_[ranks_[i]], world_ranks_[i]});
  }
  const std::uint64_t mine = control_block(rank_).owner.load(std::memory_order_relaxed);
  return [&context = context_, peers = std::move(peers), mine, calls]() mutable {
    return std::ranges::all_of(peers, [&](Peer& peer) {
      const std::uint64_t owner = peer.block->owner.load(std::memory_order_acquire);
      peer.seen |= owner == mine;
      const bool has_left = owner != mine && (peer.seen || owner != 0);
      return has_left || peer.block->completed.load(std::memory_order_acquire) >= calls ||
             context.lost(peer.world_rank) || context.departed(peer.world_rank);
    });
  };
}

// A peer that is no member has yet to come: it goes only when this rank has made all its calls,
// too.
[[gnu::hot]] bool LocalPeers::have_completed(std::uint64_t sequence) {
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (const int peer : ranks_) {
    least = std::min(least, is_member(peer) ? completed(peer) : 0);
  }
  if (least <= sequence) {
    return false;
  }
  completed_by_all_ = least;
  return true;
}

std::vector<int> LocalPeers::behind(std::uint64_t sequence, std::size_t input_bytes) const {
  const std::uint64_t calls =
      sequence + 1 - std::min(sequence + 1, ControlBlock::depth(input_bytes) / 2);
  std::vector<int> behind;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (!is_member(ranks_[i]) || completed(ranks_[i]) < calls) {
      behind.push_back(world_ranks_[i]);
    }
  }
  return behind;
}

// The acquiring load of `announced` comes first: all else in a slot was written before its release,
// and may be of an earlier call until then.
[[gnu::hot]] bool LocalPeers::all_announced(std::uint64_t sequence, const Signature& signature,
                                            std::uint64_t prior_calls_hash) {
  const bool all = std::ranges::all_of(
      ranks_, [&](int peer) { return has_announced(peer, sequence, signature, prior_calls_hash); });
  if (all) {
    note_announced_by_all(sequence);
  }
  return all;
}

// A slot may show a later call by now, whose caller is not late for this one.
std::vector<int> LocalPeers::late(std::uint64_t sequence) const {
  std::vector<int> late;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (slot(ranks_[i], sequence).announced.load(std::memory_order_acquire) <= sequence) {
      late.push_back(world_ranks_[i]);
    }
  }
  return late;
}

// What a slot says of windows is of the call that it shows: until a rank has called this one, the
// windows that it has left are an earlier call's.
std::vector<int> LocalPeers::not_left(std::uint64_t sequence, std::size_t windows) const {
  std::vector<int> ranks;
  for (const int peer : ranks_) {
    if (!has_called(peer, sequence) ||
        slot(peer, sequence).left.load(std::memory_order_acquire) < windows) {
      ranks.push_back(peer);
    }
  }
  return ranks;
}

bool LocalPeers::lowest_that_waits(std::uint64_t sequence) const {
  return std::ranges::none_of(ranks_, [&](int peer) {
    return peer < rank_ && has_called(peer, sequence) &&
           control_block(peer).completed.load(std::memory_order_acquire) <= sequence;
  });
}

void LocalPeers::follow(std::uint64_t sequence, const Signature& signature,
                        std::uint64_t prior_calls_hash) {
  sequence_ = sequence;
  signature_ = signature;
  prior_calls_hash_ = prior_calls_hash;
  differs_ = false;
  std::ranges::fill(seen_, 0);
}

// Remembers what it has seen: each poll would otherwise fetch the peer's cache line again, and
// compare its signature.
[[gnu::hot]] bool LocalPeers::look(int rank) {
  if (!has_called(rank, sequence_)) {
    return false;
  }
  if (!slot(rank, sequence_).shows(signature_, prior_calls_hash_)) {
    differs_ = true;
    return false;
  }
  seen_[rank] = 1;
  return true;
}

[[gnu::hot]] bool LocalPeers::all_announced() {
  const bool all = std::ranges::all_of(ranks_, [&](int peer) { return announced(peer); });
  if (all) {
    note_announced_by_all(sequence_);
  }
  return all;
}

// Inlined calls store no signals: the announcement itself was the first and only one. It was the
// first one of a call that it opened, too.
[[gnu::hot]] bool LocalPeers::has_signalled(int rank, std::size_t window,
                                            std::uint32_t needs) const {
  const Slot& theirs = slot(rank, sequence_);
  return needs == 0 ||
         (needs == 1 && (theirs.is(Slot::inlined) || (window == 0 && theirs.is(Slot::opened)))) ||
         theirs.signals.load(std::memory_order_acquire) >= Slot::progress(window, needs);
}

[[gnu::hot]] bool LocalPeers::all_left(std::size_t windows) {
  const bool all = std::ranges::all_of(ranks_, [&](int peer) {
    return announced(peer) && slot(peer, sequence_).left.load(std::memory_order_acquire) >= windows;
  });
  if (all) {
    note_announced_by_all(sequence_);
  }
  return all;
}

bool LocalPeers::all_inlined() const {
  return std::ranges::all_of(ranks_, [&](int peer) {
    return seen_[peer] != 0 && slot(peer, sequence_).is(Slot::inlined);
  });
}

}  // namespace sprat::collectives
