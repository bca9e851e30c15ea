// A receive is told of with the number of messages that had come before it. So those that may have
// taken it are the ones sent since, of its tag, for which no other receive was known.
#include "comm/transports/sockets/peer_receives.hpp"

#include <algorithm>

namespace sprat::comm::sockets {

bool PeerReceives::note(const PeerReceive& receive) noexcept {
  if (static_cast<std::int32_t>(sent_ - receive.seen) < 0) {
    return false;
  }
  for (std::size_t at = count_; at-- > 0;) {
    if (may_be_taken(receives_[at])) {
      forget(at);
    }
  }
  if (count_ < most_receives) {
    receives_[count_++] = receive;
  }
  return true;
}

bool PeerReceives::take(std::uint64_t tag, std::size_t bytes) noexcept {
  for (std::size_t at = 0; at < count_;) {
    const PeerReceive receive = receives_[at];
    if (receive.tag != tag) {
      ++at;
    } else if (may_be_taken(receive)) {
      forget(at);
    } else if (bytes <= receive.bytes) {
      forget(at);
      return true;
    } else {
      return false;  // it is this message's all the same, and refuses it
    }
  }
  return false;
}

void PeerReceives::sent(std::uint64_t tag, bool taken) noexcept {
  tags_[sent_++ % most_messages] = taken ? no_tag : tag;
}

bool PeerReceives::may_be_taken(const PeerReceive& receive) const noexcept {
  if (sent_ - receive.seen > most_messages) {
    return true;
  }
  for (std::uint32_t number = receive.seen; number != sent_; ++number) {
    if (tags_[number % most_messages] == receive.tag) {
      return true;
    }
  }
  return false;
}

void PeerReceives::forget(std::size_t at) noexcept {
  std::copy(receives_.begin() + at + 1, receives_.begin() + count_, receives_.begin() + at);
  --count_;
}

}  // namespace sprat::comm::sockets
