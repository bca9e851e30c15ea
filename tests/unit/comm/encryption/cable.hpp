// Two sockets with somebody between them, who hands on what they say as a test wants it.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "comm/transports/sockets/tcp.hpp"

namespace sprat::comm {

/// Of the two ends the first connects and the second listens.
class Cable {
 public:
  Cable() {
    for (const std::size_t end : {0u, 1u}) {
      std::array<int, 2> pair = {-1, -1};
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()),
                0);
      ends_[end] = sockets::Descriptor(pair[0]);
      middle_[end] = sockets::Descriptor(pair[1]);
    }
  }
  int end(std::size_t which) const { return ends_[which].number(); }
  /// Whoever is between goes, and what that end has not taken stays for it.
  void let_go(std::size_t end) { middle_[end].close(); }
  /// As if that end had said it.
  void say(std::size_t which, std::span<const std::byte> bytes) { hand_on(1 - which, bytes); }
  /// Hands on at most `step` bytes of each end, if the other has taken those before, and closes
  /// behind its `cut`.
  void move() {
    for (const std::size_t from : {0u, 1u}) {
      hand_on(1 - from, {});
      const std::size_t room =
          waiting_[1 - from].empty() ? std::min(step, cut[from] - said[from].size()) : 0;
      std::vector<std::byte> bytes(std::min<std::size_t>(room, 65536));
      const ssize_t got =
          bytes.empty() ? 0 : ::recv(middle_[from].number(), bytes.data(), bytes.size(), 0);
      if (got > 0) {
        bytes.resize(static_cast<std::size_t>(got));
        const std::size_t before = said[from].size();
        said[from].insert(said[from].end(), bytes.begin(), bytes.end());
        if (alter[from] >= before && alter[from] < said[from].size()) {
          bytes[alter[from] - before] ^= std::byte{0x10};
        }
        hand_on(1 - from, bytes);
      }
      if (said[from].size() == cut[from]) {
        ::shutdown(middle_[1 - from].number(), SHUT_WR);
      }
    }
  }

  static constexpr std::size_t never = std::numeric_limits<std::size_t>::max();
  std::size_t step = never;
  std::array<std::size_t, 2> cut = {never, never};    ///< After so many bytes nothing comes.
  std::array<std::size_t, 2> alter = {never, never};  ///< This byte comes as another.
  std::array<std::vector<std::byte>, 2> said;         ///< By each end.

 private:
  void hand_on(std::size_t to, std::span<const std::byte> bytes) {
    std::vector<std::byte>& waiting = waiting_[to];
    waiting.insert(waiting.end(), bytes.begin(), bytes.end());
    const ssize_t sent = ::send(middle_[to].number(), waiting.data(), waiting.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      waiting.erase(waiting.begin(), waiting.begin() + sent);
    }
  }

  std::array<sockets::Descriptor, 2> ends_, middle_;
  std::array<std::vector<std::byte>, 2> waiting_;  ///< That end has no room for it yet.
};

}  // namespace sprat::comm
