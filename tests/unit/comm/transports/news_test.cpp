// A thread may sleep on a wire's descriptors: readable for what has come, and silent otherwise.
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/unit/bytes.hpp"
#include "tests/unit/comm/transports/wires.hpp"

namespace sprat::comm {
namespace {

using namespace std::chrono_literals;
using State = MessageRequest::State;

/// Two ranks over the loopback.
struct WirePair {
  explicit WirePair(const WireKind& kind) {
    for (int rank = 0; rank < 2; ++rank) {
      ranks[static_cast<std::size_t>(rank)] = kind.open(rank, 2);
    }
    const std::array addresses = {ranks[0]->address(), ranks[1]->address()};
    ranks[0]->connect(addresses);
    ranks[1]->connect(addresses);
  }
  std::array<std::unique_ptr<MessageTransport>, 2> ranks;
};

/// Those that a thread can sleep on: not ofi_rxm.
std::vector<WireKind> wires_with_news() {
  std::vector<WireKind> wires;
  for (const WireKind& kind : all_wires()) {
    if (kind.open(0, 1)->news() != nullptr) {
      wires.push_back(kind);
    }
  }
  return wires;
}

bool readable(const NewsDescriptors& news, std::chrono::milliseconds patience) {
  std::vector<pollfd> polled;
  for (const int descriptor : news.descriptors()) {
    polled.push_back({descriptor, POLLIN, 0});
  }
  return poll(polled.data(), polled.size(), static_cast<int>(patience.count())) > 0;
}

/// A thread that has nothing to do but this request, and sleeps whenever it may.
void wait_asleep(MessageTransport& rank, const MessageRequest& request) {
  NewsDescriptors& news = *rank.news();
  while (request.state == State::posted) {
    const bool may_sleep = news.next() == NewsDescriptors::Next::sleep;
    if (!rank.progress() && may_sleep) {
      ASSERT_TRUE(readable(news, 20s)) << "it was not told of news";
    }
  }
}

/// A thread that spins for a rank while this lives.
class Spinning {
 public:
  explicit Spinning(MessageTransport& rank)
      : thread_([this, &rank] {
          while (!stop_) {
            rank.progress();
          }
        }) {}
  ~Spinning() {
    stop_ = true;
    thread_.join();
  }
  Spinning(const Spinning&) = delete;
  Spinning& operator=(const Spinning&) = delete;

 private:
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

void settle(MessageTransport& rank) {
  while (rank.progress() || rank.news()->next() == NewsDescriptors::Next::drive) {
  }
}

// What is sent at once, and what both sides have to work for; the last fills sockets.
constexpr std::array<std::size_t, 3> message_bytes = {8, 1'000'000, 16 << 20};

TEST(News, tell_who_receives_when_there_is_some) {
  for (const WireKind& kind : wires_with_news()) {
    SCOPED_TRACE(kind.name);
    WirePair pair(kind);
    MessageTransport &sends = *pair.ranks[0], &sleeps = *pair.ranks[1];
    ASSERT_NE(sleeps.news(), nullptr);
    for (int message = 0; message < 12; ++message) {
      const std::vector<std::byte> sent(message_bytes[message % message_bytes.size()],
                                        static_cast<std::byte>(message));
      std::vector<std::byte> got(sent.size());
      MessageRequest send, recv;
      sleeps.recv(recv, 0, 7, got);
      settle(sleeps);
      EXPECT_FALSE(readable(*sleeps.news(), 20ms)) << "nothing has come";
      sends.send(send, 1, 7, sent);
      {
        const Spinning peer(sends);
        wait_asleep(sleeps, recv);
      }
      EXPECT_EQ(recv.state, State::done);
      const Spinning receiver(sleeps);
      while (send.state == State::posted) {
        sends.progress();
      }
      EXPECT_TRUE(same_bytes(got, sent));
    }
  }
}

TEST(News, tell_who_sends_when_there_is_room) {
  for (const WireKind& kind : wires_with_news()) {
    SCOPED_TRACE(kind.name);
    WirePair pair(kind);
    MessageTransport &sleeps = *pair.ranks[0], &receives = *pair.ranks[1];
    for (int message = 0; message < 12; ++message) {
      const std::vector<std::byte> sent(message_bytes[message % message_bytes.size()],
                                        static_cast<std::byte>(message));
      std::vector<std::byte> got(sent.size());
      MessageRequest send, recv;
      receives.recv(recv, 0, 7, got);
      sleeps.send(send, 1, 7, sent);
      {
        const Spinning peer(receives);
        wait_asleep(sleeps, send);
      }
      EXPECT_EQ(send.state, State::done);
      const Spinning sender(sleeps);
      while (recv.state == State::posted) {
        receives.progress();
      }
      EXPECT_TRUE(same_bytes(got, sent));
    }
  }
}

TEST(News, tell_of_the_rest_of_what_came_before_its_receive) {
  for (const WireKind& kind : wires_with_news()) {
    SCOPED_TRACE(kind.name);
    WirePair pair(kind);
    MessageTransport &sends = *pair.ranks[0], &sleeps = *pair.ranks[1];
    for (int message = 0; message < 12; ++message) {
      const std::vector<std::byte> sent(message_bytes[message % message_bytes.size()],
                                        static_cast<std::byte>(message));
      std::vector<std::byte> got(sent.size());
      MessageRequest send, recv;
      sends.send(send, 1, 7, sent);
      {
        const Spinning peer(sends);
        ASSERT_TRUE(readable(*sleeps.news(), 20s));
        for (int round = 0; round < 100; ++round) {
          sleeps.progress();
          sleeps.news()->next();
        }
        sleeps.recv(recv, 0, 7, got);
        wait_asleep(sleeps, recv);
      }
      EXPECT_TRUE(same_bytes(got, sent));
      const Spinning receiver(sleeps);
      while (send.state == State::posted) {
        sends.progress();
      }
    }
  }
}

}  // namespace
}  // namespace sprat::comm
