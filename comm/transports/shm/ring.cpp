// Messages between ranks that share memory, through one ring a pair and direction.
#include "comm/transports/shm/ring.hpp"

#include <algorithm>
#include <cerrno>

#include "comm/base/check.hpp"
#include "comm/transports/shm/link.hpp"

namespace sprat::comm {

ShmRing::~ShmRing() = default;

ShmRing::ShmRing(ShmRingOptions options)
    : options_(std::move(options)),
      unexpected_(std::make_unique<UnexpectedRules>(UnexpectedRules{options_.unexpected_bytes})) {
  const std::size_t ranks = options_.ranks.size();
  require(options_.mine.size() >= bytes_needed(ranks), "shared memory for the rings of ", ranks,
          " ranks is ", options_.mine.size(), " bytes; it must be ", bytes_needed(ranks));
  require(options_.memory.size() == ranks, "rings of ", options_.memory.size(), " ranks given for ",
          ranks, " ranks");
  const auto self = std::find(options_.ranks.begin(), options_.ranks.end(), options_.rank);
  require(self != options_.ranks.end(), "rank ", options_.rank,
          " is not among the ranks that share");
  const auto my_position = static_cast<std::size_t>(self - options_.ranks.begin());

  // A lane of zeros is an empty one, so lanes are found in the zeroed memory and not constructed: a
  // peer may have mapped it already.
  auto* my_lanes = reinterpret_cast<FrameLane*>(options_.mine.data());
  for (std::size_t at = 0; at < ranks; ++at) {
    const int rank = options_.ranks[at];
    require(rank >= 0, "rank ", rank, " is negative");
    if (position_.size() <= static_cast<std::size_t>(rank)) {
      position_.resize(static_cast<std::size_t>(rank) + 1, -1);
    }
    position_[static_cast<std::size_t>(rank)] = static_cast<int>(at);
    const auto* peers_lanes = reinterpret_cast<const FrameLane*>(options_.memory[at]);
    links_.push_back(
        std::make_unique<ShmLink>(my_lanes[at], peers_lanes[my_position], *unexpected_));
  }
  unasked_.reserve(ranks);
}

Blob ShmRing::address() {
  // Ranks that would read each other's rings by another layout are refused by connect().
  const std::uint64_t layout[] = {FrameLane::ring_bytes, options_.ranks.size()};
  const auto bytes = std::as_bytes(std::span(layout));
  return {bytes.begin(), bytes.end()};
}

void ShmRing::connect(std::span<const Blob> addresses) {
  const Blob mine = address();
  for (const int rank : options_.ranks) {
    if (static_cast<std::size_t>(rank) >= addresses.size() ||
        addresses[static_cast<std::size_t>(rank)] != mine) {
      throw Error(ErrorCode::mismatch,
                  text("rank ", rank, " lays out its message rings differently from rank ",
                       options_.rank, "; both must run the same version of Sprat"),
                  rank);
    }
  }
}

ShmLink* ShmRing::link_to(int peer) {
  if (peer < 0 || static_cast<std::size_t>(peer) >= position_.size() ||
      position_[static_cast<std::size_t>(peer)] < 0) {
    return nullptr;
  }
  return links_[static_cast<std::size_t>(position_[static_cast<std::size_t>(peer)])].get();
}

void ShmRing::send(MessageRequest& request, int peer, std::uint64_t tag,
                   std::span<const std::byte> data) {
  request.peer = peer;
  if (ShmLink* link = link_to(peer)) {
    link->send(request, tag, data);
  } else {
    fail(request, EHOSTUNREACH);
  }
}

void ShmRing::recv(MessageRequest& request, int peer, std::uint64_t tag,
                   std::span<std::byte> data) {
  request.peer = peer;
  if (ShmLink* link = link_to(peer)) {
    link->recv(request, tag, data);
  } else {
    fail(request, EHOSTUNREACH);
  }
}

std::optional<std::size_t> ShmRing::probe(int peer, std::uint64_t tag) noexcept {
  const ShmLink* link = link_to(peer);
  return link == nullptr ? std::nullopt : link->probe(tag);
}

// Those of one host are few, so they are looked through.
std::optional<std::span<const int>> ShmRing::unasked() noexcept {
  unasked_.clear();
  for (std::size_t at = 0; at < links_.size(); ++at) {
    if (links_[at]->has_unasked()) {
      unasked_.push_back(options_.ranks[at]);
    }
  }
  std::ranges::sort(unasked_);
  return unasked_;
}

bool ShmRing::progress() noexcept {
  bool moved = false;
  for (std::size_t at = 0; at < links_.size(); ++at) {
    if (!links_[at]->progress()) {
      continue;
    }
    moved = true;
    // What was read has made room for the peer to write, and what was written is for it to read.
    if (options_.ring) {
      options_.ring(options_.ranks[at]);
    }
  }
  return moved;
}

void ShmRing::cancel(MessageRequest& request) noexcept {
  if (request.state == MessageRequest::State::posted) {
    link_to(request.peer)->cancel(request);
  }
}

void ShmRing::forget(std::uint64_t communicator) noexcept {
  unexpected_->forget(communicator);
  for (const auto& link : links_) {
    link->drop_forgotten();
  }
}

}  // namespace sprat::comm
