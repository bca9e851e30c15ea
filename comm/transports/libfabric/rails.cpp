// Messages over several rails, an endpoint each.
#include "comm/transports/libfabric/rails.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/transports/libfabric/rail_cut.hpp"

namespace sprat::comm::libfabric {

namespace {

using State = MessageRequest::State;

/// For cancel(), a request remembers the rail that carries it, or the pieces that it was cut into.
/// Messages itself uses the first slot.
constexpr std::size_t rail_slot = 1, cut_slot = 2;
constexpr std::size_t cuts_a_growth = 16;

using Length = std::uint32_t;

/// Each rail's address, behind its length.
std::vector<Blob> unpacked(const Blob& all) {
  std::vector<Blob> each;
  for (std::size_t at = 0; at + sizeof(Length) <= all.size();) {
    Length bytes = 0;
    std::memcpy(&bytes, all.data() + at, sizeof bytes);
    at += sizeof bytes;
    // The bytes come from a peer. An empty list is refused below, by the number of rails.
    if (bytes > all.size() - at) {
      return {};
    }
    each.emplace_back(all.data() + at, all.data() + at + bytes);
    at += bytes;
  }
  return each;
}

/// Of all rails, or of none: a thread that sleeps must hear from each of them.
std::vector<int> descriptors_of(const std::vector<std::unique_ptr<Messages>>& rails) {
  std::vector<int> all;
  for (const auto& rail : rails) {
    NewsDescriptors* news = rail->news();
    if (news == nullptr) {
      return {};
    }
    const auto theirs = news->descriptors();
    all.insert(all.end(), theirs.begin(), theirs.end());
  }
  return all;
}

}  // namespace

Rails::Rails(std::vector<std::unique_ptr<Messages>> rails, int rank)
    : rails_(std::move(rails)), rank_(rank), descriptors_(descriptors_of(rails_)) {
  for (const auto& rail : rails_) {
    if (rails_.size() > 1) {
      rail->set_whole_below(least_cut);
    }
  }
}

// Each is asked, for being asked takes back what one's descriptor shows.
NewsDescriptors::Next Rails::next() noexcept {
  Next all = Next::sleep;
  for (const auto& rail : rails_) {
    all = std::max(all, rail->news()->next());
  }
  return all;
}

Blob Rails::address() {
  Blob all;
  for (const auto& rail : rails_) {
    const Blob one = rail->address();
    const auto bytes = static_cast<Length>(one.size());
    const auto* begin = reinterpret_cast<const std::byte*>(&bytes);
    all.insert(all.end(), begin, begin + sizeof bytes);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

void Rails::connect(std::span<const Blob> addresses) {
  std::vector<std::vector<Blob>> by_rail(rails_.size(), std::vector<Blob>(addresses.size()));
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
    if (addresses[rank].empty()) {
      continue;
    }
    std::vector<Blob> theirs = unpacked(addresses[rank]);
    if (theirs.size() != rails_.size()) {
      throw Error(ErrorCode::mismatch,
                  text("rank ", rank, " has ", theirs.size(), " rails, this rank ", rails_.size(),
                       "; let SPRAT_INTERFACE name as many interfaces on every host"),
                  static_cast<int>(rank));
    }
    for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
      by_rail[rail][rank] = std::move(theirs[rail]);
    }
  }
  for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
    rails_[rail]->connect(by_rail[rail]);
  }
}

void Rails::send(MessageRequest& request, int peer, std::uint64_t tag,
                 std::span<const std::byte> data) {
  const std::size_t home = home_of(rank_, peer, tag);
  if (!is_cut(data.size())) {
    return whole_on(home, request).send(request, peer, tag, data);
  }
  CutMessage& message = begin_cut(request, peer, home);
  message.target = nullptr;
  message.bytes = data.size();
  for (std::size_t index = 0; index < rails_.size(); ++index) {
    const Piece piece = piece_of(data.size(), rails_.size(), index);
    rail_of(message, index)
        .send(message.pieces[index], peer, tag, data.subspan(piece.offset, piece.bytes));
  }
  settle_or_keep(message);
}

void Rails::recv(MessageRequest& request, int peer, std::uint64_t tag, std::span<std::byte> data) {
  const std::size_t home = home_of(peer, rank_, tag);
  if (!is_cut(data.size())) {
    return whole_on(home, request).recv(request, peer, tag, data);
  }
  CutMessage& message = begin_cut(request, peer, home);
  message.target = data.data();
  message.bytes = data.size();
  for (std::size_t index = 0; index < rails_.size(); ++index) {
    const Piece piece = piece_of(data.size(), rails_.size(), index);
    rail_of(message, index)
        .recv(message.pieces[index], peer, tag,
              piece.bytes > 0 ? data.subspan(piece.offset, piece.bytes)
                              : std::span(&message.room, 1));
  }
  settle_or_keep(message);
}

std::size_t Rails::home_of(int from, int to, std::uint64_t tag) const {
  return rails_.size() == 1 ? 0 : home_rail(from, to, tag, rails_.size());
}

bool Rails::is_cut(std::size_t bytes) const { return rails_.size() > 1 && bytes >= least_cut; }

Messages& Rails::whole_on(std::size_t rail, MessageRequest& request) {
  request.provider[rail_slot] = rails_[rail].get();
  request.provider[cut_slot] = nullptr;
  return *rails_[rail];
}

Rails::CutMessage& Rails::begin_cut(MessageRequest& request, int peer, std::size_t home) {
  if (free_.empty()) {
    // Room for all of them now, so that neither giving one back nor keeping one open allocates.
    free_.reserve(cut_.size() + cuts_a_growth);
    open_.reserve(cut_.size() + cuts_a_growth);
    for (std::size_t made = 0; made < cuts_a_growth; ++made) {
      cut_.emplace_back().pieces.resize(rails_.size());
      free_.push_back(&cut_.back());
    }
  }
  CutMessage& message = *free_.back();
  free_.pop_back();
  message.request = &request;
  message.home = home;
  message.is_whole = false;
  message.error = 0;
  request.state = State::posted;
  request.bytes = 0;
  request.error = 0;
  request.peer = peer;
  request.provider[cut_slot] = &message;
  return message;
}

/// Pieces that cannot be posted have failed already.
void Rails::settle_or_keep(CutMessage& message) {
  if (!settle(message)) {
    open_.push_back(&message);
  }
}

std::optional<std::size_t> Rails::probe(int peer, std::uint64_t tag) noexcept {
  return rails_[home_of(peer, rank_, tag)]->probe(peer, tag);
}

bool Rails::progress() noexcept {
  bool moved = false;
  for (const auto& rail : rails_) {
    moved |= rail->progress();
  }
  // All of them every time, for cancel() and probe() drive rails too.
  if (!open_.empty()) {
    moved |= std::erase_if(open_, [&](CutMessage* message) { return settle(*message); }) > 0;
  }
  return moved;
}

/// Whether the message has ended. It ends only once no rail touches its memory any more, so what is
/// lost or too much is asked back first.
bool Rails::settle(CutMessage& message) noexcept {
  const MessageRequest& first = message.pieces.front();
  if (message.target != nullptr && !message.is_whole && first.state == State::done &&
      first.bytes < least_cut) {
    message.is_whole = true;
    ask_back_all(message);
  }
  if (message.error == 0 && !message.is_whole) {
    const auto failed = std::ranges::find(message.pieces, State::failed, &MessageRequest::state);
    if (failed != message.pieces.end()) {
      message.error = failed->error;
      ask_back_all(message);
    }
  }
  if (std::ranges::count(message.pieces, State::posted, &MessageRequest::state) > 0) {
    return false;
  }
  finish(message);
  return true;
}

void Rails::ask_back_all(CutMessage& message) noexcept {
  for (std::size_t index = 0; index < message.pieces.size(); ++index) {
    rail_of(message, index).ask_back(message.pieces[index]);
  }
}

void Rails::finish(CutMessage& message) noexcept {
  MessageRequest& request = *message.request;
  if (message.is_whole) {
    request.bytes = message.pieces.front().bytes;
  } else if (message.error == 0) {
    for (const MessageRequest& piece : message.pieces) {
      request.bytes += piece.bytes;
    }
    if (request.bytes > message.bytes) {
      message.error = EMSGSIZE;
    } else if (request.bytes < message.bytes) {
      close_gaps(message);
    }
  }
  request.error = message.error;
  request.state = message.error == 0 ? State::done : State::failed;
  free_.push_back(&message);
}

/// The pieces of a message that is shorter than its receive are shorter than there was room for.
void Rails::close_gaps(CutMessage& message) noexcept {
  std::size_t end = 0;
  for (std::size_t index = 0; index < message.pieces.size(); ++index) {
    const std::size_t came = message.pieces[index].bytes;
    std::memmove(message.target + end,
                 message.target + piece_of(message.bytes, rails_.size(), index).offset, came);
    end += came;
  }
}

void Rails::cancel(MessageRequest& request) noexcept {
  if (request.state != State::posted) {
    return;
  }
  if (request.provider[cut_slot] == nullptr) {
    return static_cast<Messages*>(request.provider[rail_slot])->cancel(request);
  }
  auto& message = *static_cast<CutMessage*>(request.provider[cut_slot]);
  for (std::size_t index = 0; index < message.pieces.size(); ++index) {
    rail_of(message, index).cancel(message.pieces[index]);
  }
  settle(message);
  std::erase(open_, &message);
}

}  // namespace sprat::comm::libfabric
