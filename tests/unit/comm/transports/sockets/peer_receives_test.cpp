// Which message needs not be announced, beside a model that knows what every message takes.
#include "comm/transports/sockets/peer_receives.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

namespace sprat::comm::sockets {
namespace {

TEST(PeerReceives, are_each_for_one_message_of_their_tag) {
  PeerReceives receives;
  EXPECT_FALSE(receives.take(1, 10));
  ASSERT_TRUE(receives.note({.tag = 1, .bytes = 100, .seen = 0}));
  ASSERT_TRUE(receives.note({.tag = 1, .bytes = 200, .seen = 0}));
  EXPECT_FALSE(receives.take(2, 10));
  receives.sent(2, false);
  EXPECT_FALSE(receives.take(1, 101)) << "the first is its receive, and too short";
  EXPECT_TRUE(receives.take(1, 100));
  receives.sent(1, true);
  EXPECT_TRUE(receives.take(1, 200));
  receives.sent(1, true);
  EXPECT_FALSE(receives.take(1, 10));
}

TEST(PeerReceives, count_for_none_once_an_earlier_message_may_have_taken_them) {
  PeerReceives receives;
  receives.sent(1, false);
  ASSERT_TRUE(receives.note({.tag = 1, .bytes = 100, .seen = 0}));  // it may be the first one's
  ASSERT_TRUE(receives.note({.tag = 2, .bytes = 100, .seen = 0}));
  EXPECT_FALSE(receives.take(1, 10));
  receives.sent(1, false);
  EXPECT_TRUE(receives.take(2, 10));
  receives.sent(2, true);
  ASSERT_TRUE(receives.note({.tag = 1, .bytes = 100, .seen = 3}));  // both had come by then
  EXPECT_TRUE(receives.take(1, 10));
}

TEST(PeerReceives, are_forgotten_after_many_messages) {
  PeerReceives receives;
  ASSERT_TRUE(receives.note({.tag = 1, .bytes = 100, .seen = 0}));
  for (int message = 0; message < 33; ++message) {
    receives.sent(2, false);
  }
  EXPECT_FALSE(receives.take(1, 10));
  EXPECT_FALSE(receives.note({.tag = 1, .bytes = 100, .seen = 34})) << "nobody has sent so many";
  EXPECT_TRUE(receives.note({.tag = 1, .bytes = 100, .seen = 33}));
  EXPECT_TRUE(receives.take(1, 10));
}

TEST(PeerReceives, are_a_few_at_once) {
  PeerReceives receives;
  for (std::uint64_t tag = 0; tag < 100; ++tag) {
    ASSERT_TRUE(receives.note({.tag = tag, .bytes = 100, .seen = 0}));
  }
  EXPECT_TRUE(receives.take(0, 100));
  EXPECT_FALSE(receives.take(99, 100));
}

/// Receives that are posted at one end and messages that come there, each for the first receive of
/// its tag; what the ends say takes its time. Whatever take() promises is so.
TEST(PeerReceives, promise_only_what_holds) {
  struct Message {
    std::uint64_t tag;
    bool promised;
  };
  std::size_t promises = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    PeerReceives receives;
    std::deque<std::uint64_t> posted;      // at the peer, by tag
    std::deque<std::uint64_t> unexpected;  // messages that wait for receives there
    std::deque<PeerReceive> told;          // on its way here
    std::deque<Message> sent;              // on its way there
    std::uint32_t seen = 0;
    for (int turn = 0; turn < 2'000; ++turn) {
      const std::uint64_t tag = random() % 3;
      switch (random() % 4) {
        case 0:
          if (const auto found = std::ranges::find(unexpected, tag); found != unexpected.end()) {
            unexpected.erase(found);
          } else {
            posted.push_back(tag);
            if (random() % 4 != 0) {  // short ones are not told of
              told.push_back({.tag = tag, .bytes = 100, .seen = seen});
            }
          }
          break;
        case 1:
          if (!told.empty()) {
            ASSERT_TRUE(receives.note(told.front()));
            told.pop_front();
          }
          break;
        case 2: {
          const bool promised = random() % 2 == 0 && receives.take(tag, 100);
          receives.sent(tag, promised);
          sent.push_back({tag, promised});
          promises += promised ? 1 : 0;
          break;
        }
        default:
          if (!sent.empty()) {
            const Message message = sent.front();
            sent.pop_front();
            ++seen;
            const auto found = std::ranges::find(posted, message.tag);
            ASSERT_TRUE(found != posted.end() || !message.promised) << "seed " << seed;
            if (found != posted.end()) {
              posted.erase(found);
            } else {
              unexpected.push_back(message.tag);
            }
          }
      }
    }
  }
  EXPECT_GT(promises, 1'000u);
}

}  // namespace
}  // namespace sprat::comm::sockets
