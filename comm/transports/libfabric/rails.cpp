// Messages over several rails, an endpoint each: a message's tag says which carries it.
#include "comm/transports/libfabric/rails.hpp"

#include <cstring>

#include "comm/base/check.hpp"

namespace sprat::comm::libfabric {

namespace {

/// Remembers in the request which rail carries it, for cancel(). Messages itself uses the first
/// slot.
constexpr std::size_t rail_slot = 1;

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

}  // namespace

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
  request.provider[rail_slot] = &rail_of(tag);
  rail_of(tag).send(request, peer, tag, data);
}

void Rails::recv(MessageRequest& request, int peer, std::uint64_t tag, std::span<std::byte> data) {
  request.provider[rail_slot] = &rail_of(tag);
  rail_of(tag).recv(request, peer, tag, data);
}

std::optional<std::size_t> Rails::probe(int peer, std::uint64_t tag) noexcept {
  return rail_of(tag).probe(peer, tag);
}

bool Rails::progress() noexcept {
  bool moved = false;
  for (const auto& rail : rails_) {
    moved |= rail->progress();
  }
  return moved;
}

void Rails::cancel(MessageRequest& request) noexcept {
  if (request.state == MessageRequest::State::posted) {
    static_cast<Messages*>(request.provider[rail_slot])->cancel(request);
  }
}

}  // namespace sprat::comm::libfabric
