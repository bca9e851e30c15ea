// Random traffic for any message transport: letters whose content follows from their seed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <thread>
#include <vector>

#include "comm/transports/transport.hpp"
#include "tests/unit/bytes.hpp"

namespace sprat::comm {

/// One message of the random traffic.
struct Letter {
  int from, to;
  std::uint64_t tag;
  std::size_t bytes;
  std::uint64_t seed;
};

/// Letters of 0 to `most_bytes` bytes, most of them short, between any two of `ranks` ranks.
inline std::vector<Letter> random_letters(int ranks, std::uint64_t count, std::size_t most_bytes) {
  std::mt19937_64 random(42);
  std::vector<Letter> letters;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::size_t limit = i % 10 == 0 ? most_bytes : i % 3 == 0 ? 40'000 : 200;
    const auto any_rank = [&] { return static_cast<int>(random() % static_cast<unsigned>(ranks)); };
    const int from = any_rank(), to = any_rank();
    letters.push_back({from, to, i, random() % limit, random()});
  }
  return letters;
}

/// Sends and receives a rank's letters, the receives in an order of their own, and checks them.
inline void correspond(MessageTransport& transport, int me, const std::vector<Letter>& letters,
                       std::uint64_t seed) {
  struct Open {
    const Letter* letter;
    std::vector<std::byte> data;
    MessageRequest request;
  };
  std::deque<Open> sends, recvs;
  for (const Letter& letter : letters) {
    if (letter.from == me) {
      sends.push_back({&letter, pattern(letter.bytes, letter.seed), {}});
    }
    if (letter.to == me) {
      recvs.push_back({&letter, std::vector<std::byte>(letter.bytes), {}});
    }
  }
  // Receives of one (peer, tag) must be posted in their order of sending; tags are unique here.
  std::mt19937_64 random(seed);
  std::shuffle(recvs.begin(), recvs.end(), random);
  for (std::size_t at = 0; at < std::max(sends.size(), recvs.size()); ++at) {
    if (at < sends.size()) {
      transport.send(sends[at].request, sends[at].letter->to, sends[at].letter->tag,
                     sends[at].data);
    }
    if (at < recvs.size()) {
      transport.recv(recvs[at].request, recvs[at].letter->from, recvs[at].letter->tag,
                     recvs[at].data);
    }
    transport.progress();
  }
  const auto open = [](const Open& one) {
    return one.request.state == MessageRequest::State::posted;
  };
  while (std::any_of(sends.begin(), sends.end(), open) ||
         std::any_of(recvs.begin(), recvs.end(), open)) {
    if (!transport.progress()) {
      std::this_thread::yield();
    }
  }
  for (const Open& one : recvs) {
    ASSERT_EQ(one.request.state, MessageRequest::State::done) << "rank " << me;
    ASSERT_TRUE(same_bytes(one.data, pattern(one.letter->bytes, one.letter->seed)))
        << "rank " << me;
  }
}

}  // namespace sprat::comm
