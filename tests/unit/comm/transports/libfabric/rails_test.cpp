// Messages over two rails, both of them on the loopback.
#include "comm/transports/libfabric/rails.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <string_view>
#include <thread>

#include "comm/transports/libfabric/provider.hpp"
#include "comm/transports/libfabric/rail_cut.hpp"
#include "sprat/error.hpp"
#include "tests/unit/bytes.hpp"
#include "tests/unit/comm/transports/letters.hpp"
#include "tests/unit/sanitized.hpp"

namespace sprat::comm::libfabric {
namespace {

using State = MessageRequest::State;

Rails open(int rank, int count, const char* provider = "tcp", int size = 2) {
  std::vector<std::unique_ptr<Messages>> rails;
  for (int rail = 0; rail < count; ++rail) {
    Info info = std::move(find_rails(provider, "lo").front());
    rails.push_back(std::make_unique<Messages>(std::move(info), PortRange{}, rank, size));
  }
  return Rails(std::move(rails), rank);
}

/// Ranks 0 and 1.
struct RailPair {
  explicit RailPair(int rails, const char* provider = "tcp")
      : first(open(0, rails, provider)), second(open(1, rails, provider)) {
    const std::vector<Blob> addresses = {first.address(), second.address()};
    first.connect(addresses);
    second.connect(addresses);
  }
  void drive(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      first.progress();
      second.progress();
    }
  }
  /// False after 20 s without the end of all of them.
  bool drive_until_ended(std::initializer_list<const MessageRequest*> requests) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const auto ended = [](const MessageRequest* one) { return one->state != State::posted; };
    while (!std::ranges::all_of(requests, ended) && std::chrono::steady_clock::now() < deadline) {
      drive(1);
    }
    return std::ranges::all_of(requests, ended);
  }

  Rails first, second;
};

/// A message of `bytes` from rank 0 to a receive of its length.
void expect_delivery(RailPair& pair, std::uint64_t tag, std::size_t bytes, bool recv_first) {
  const auto sent = pattern(bytes, bytes + tag);
  std::vector<std::byte> got(bytes);
  MessageRequest send, recv;
  if (recv_first) {
    pair.second.recv(recv, 0, tag, got);
  }
  pair.first.send(send, 1, tag, sent);
  if (!recv_first) {
    pair.drive(50);
    pair.second.recv(recv, 0, tag, got);
  }
  ASSERT_TRUE(pair.drive_until_ended({&send, &recv})) << bytes;
  ASSERT_EQ(send.state, State::done) << bytes;
  ASSERT_EQ(recv.state, State::done) << bytes;
  EXPECT_EQ(send.bytes, bytes);
  EXPECT_EQ(recv.bytes, bytes);
  EXPECT_TRUE(same_bytes(got, sent)) << bytes;
}

constexpr std::array<std::size_t, 12> lengths = {0,
                                                 1,
                                                 least_cut - 1,
                                                 least_cut,
                                                 least_cut + 1,
                                                 2 * least_cut - 1,
                                                 2 * least_cut,
                                                 2 * least_cut + 1,
                                                 3 * least_cut + 1,
                                                 300'001,
                                                 (1 << 20) + 3,
                                                 (4 << 20)};

TEST(Rails, carry_messages_in_turn_and_let_each_be_withdrawn) {
  Rails first = open(0, 2), second = open(1, 2);
  const std::vector<Blob> addresses = {first.address(), second.address()};
  first.connect(addresses);
  second.connect(addresses);
  constexpr std::size_t count = 6;
  std::array<MessageRequest, count> sends, recvs;
  std::vector<std::vector<std::byte>> sent, got;
  for (std::size_t tag = 0; tag < count; ++tag) {
    sent.push_back(pattern(tag * 100'000, tag));
    got.emplace_back(sent.back().size());
  }
  for (const std::size_t tag : {4u, 1u, 0u, 5u, 3u, 2u}) {
    second.recv(recvs[tag], 0, tag, got[tag]);
  }
  for (std::size_t tag = 0; tag < count; ++tag) {
    first.send(sends[tag], 1, tag, sent[tag]);
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto done = [](const MessageRequest& one) { return one.state == State::done; };
  while (!(std::ranges::all_of(recvs, done) && std::ranges::all_of(sends, done)) &&
         std::chrono::steady_clock::now() < deadline) {
    first.progress();
    second.progress();
  }
  EXPECT_EQ(got, sent);
  for (const std::uint64_t tag : {8u, 9u}) {
    MessageRequest request;
    second.recv(request, 0, tag, got.front());
    EXPECT_FALSE(second.probe(0, tag)) << tag;
    second.cancel(request);
    EXPECT_EQ(request.state, State::failed) << tag;
    EXPECT_EQ(request.error, ECANCELED) << tag;
  }
}

TEST(Rails, carry_every_length_whichever_side_is_first) {
  for (const char* provider : {"tcp", "net"}) {
    for (const int rails : {1, 2, 3}) {
      RailPair pair(rails, provider);
      std::uint64_t tag = 0;
      for (const std::size_t bytes : lengths) {
        for (const bool recv_first : {false, true}) {
          SCOPED_TRACE(testing::Message() << rails << " rails of " << provider);
          expect_delivery(pair, ++tag, bytes, recv_first);
        }
      }
    }
  }
}

TEST(Rails, take_shorter_messages_into_longer_receives) {
  for (const char* provider : {"tcp", "net"}) {
    RailPair pair(2, provider);
    std::uint64_t tag = 0;
    for (const std::size_t room : lengths) {
      for (const std::size_t bytes : lengths) {
        if (bytes >= room) {
          continue;
        }
        SCOPED_TRACE(testing::Message() << bytes << " into " << room << " by " << provider);
        const auto sent = pattern(bytes, bytes + 1);
        std::vector<std::byte> got(room);
        MessageRequest send, recv;
        pair.second.recv(recv, 0, ++tag, got);
        pair.first.send(send, 1, tag, sent);
        ASSERT_TRUE(pair.drive_until_ended({&send, &recv}));
        ASSERT_EQ(recv.state, State::done);
        ASSERT_EQ(recv.bytes, bytes);
        EXPECT_TRUE(std::equal(sent.begin(), sent.end(), got.begin()));
        // No piece of the receive waits any more for what has its tag.
        expect_delivery(pair, tag, 200'000, true);
      }
    }
  }
}

TEST(Rails, refuse_longer_messages_than_their_receives) {
  for (const char* provider : {"tcp", "net"}) {
    for (const std::size_t room : part_if_sanitized<std::size_t>(
             {0, 1, least_cut - 1, least_cut, least_cut + 1, 2 * least_cut, 300'001}, 2,
             provider[0] == 't' ? 0 : 1)) {
      for (const std::size_t bytes : {room + 1, room + least_cut, std::size_t{5} << 20}) {
        // ofi_rxm does not end a receive of nothing whose message it would have to ask for, on one
        // rail either (libfabric 1.17).
        if (room == 0 && bytes > least_cut && std::string_view(provider) == "tcp") {
          continue;
        }
        SCOPED_TRACE(testing::Message() << bytes << " into " << room << " by " << provider);
        RailPair pair(2, provider);
        const auto sent = pattern(bytes, 3);
        std::vector<std::byte> got(room);
        MessageRequest send, recv;
        pair.second.recv(recv, 0, 7, got);
        pair.first.send(send, 1, 7, sent);
        ASSERT_TRUE(pair.drive_until_ended({&recv}));
        EXPECT_EQ(recv.state, State::failed);
        EXPECT_EQ(recv.error, EMSGSIZE);
        EXPECT_TRUE(recv.bytes == 0 || recv.bytes == bytes) << recv.bytes;
        pair.first.cancel(send);
        EXPECT_NE(send.state, State::posted);
      }
    }
  }
}

TEST(Rails, keep_messages_of_equal_tags_in_order_whatever_their_lengths) {
  RailPair pair(3, "net");
  std::array<MessageRequest, lengths.size()> sends, recvs;
  std::vector<std::vector<std::byte>> sent, got;
  for (const std::size_t bytes : lengths) {
    sent.push_back(pattern(bytes, 5));
    got.emplace_back(bytes);
  }
  for (std::size_t at = 0; at < lengths.size(); ++at) {
    pair.second.recv(recvs[at], 0, 7, got[at]);
    pair.first.send(sends[at], 1, 7, sent[at]);
  }
  for (std::size_t at = 0; at < lengths.size(); ++at) {
    ASSERT_TRUE(pair.drive_until_ended({&recvs[at], &sends[at]}));
    EXPECT_EQ(recvs[at].state, State::done) << lengths[at];
    EXPECT_TRUE(same_bytes(got[at], sent[at])) << lengths[at];
  }
}

TEST(Rails, leave_alone_the_memory_of_a_withdrawn_receive) {
  for (const char* provider : {"tcp", "net"}) {
    RailPair pair(2, provider);
    const std::size_t bytes = 1 << 20;
    const auto before = pattern(bytes, 1);
    std::vector<std::byte> abandoned = before;
    MessageRequest lost;
    pair.second.recv(lost, 0, 7, abandoned);
    pair.drive(10);
    pair.second.cancel(lost);
    EXPECT_EQ(lost.state, State::failed);
    EXPECT_EQ(lost.error, ECANCELED);
    expect_delivery(pair, 7, bytes, true);
    EXPECT_TRUE(abandoned == before);
  }
}

TEST(Rails, ask_for_the_other_pieces_back_where_one_cannot_be_had) {
  for (const char* provider : {"tcp", "net"}) {
    Rails first = open(0, 2, provider), second = open(1, 2, provider);
    // Of the second of rank 0's rails, rank 1 knows no address.
    Blob one_rail = first.address();
    std::uint32_t length = 0;
    std::memcpy(&length, one_rail.data(), sizeof length);
    one_rail.resize(sizeof length + length);
    one_rail.resize(one_rail.size() + sizeof length);
    second.connect(std::vector{one_rail, second.address()});
    first.connect(std::vector{first.address(), second.address()});

    const auto before = pattern(1 << 20, 1), sent = pattern(1 << 20, 2);
    std::vector<std::byte> got = before, elsewhere(sent.size());
    MessageRequest recv, send, answer;
    second.recv(recv, 0, 7, got);
    second.send(answer, 0, 8, sent);
    first.recv(send, 1, 8, elsewhere);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while ((recv.state == State::posted || answer.state == State::posted) &&
           std::chrono::steady_clock::now() < deadline) {
      first.progress();
      second.progress();
    }
    for (const MessageRequest* lost : {&recv, &answer}) {
      EXPECT_EQ(lost->state, State::failed);
      EXPECT_EQ(lost->error, EHOSTUNREACH);
    }
    EXPECT_EQ(send.state, State::posted);  // half of it came
    first.cancel(send);
    EXPECT_EQ(send.state, State::failed);

    first.send(send, 1, 7, sent);
    for (int round = 0; round < 1000; ++round) {
      first.progress();
      second.progress();
    }
    EXPECT_TRUE(same_bytes(got, before));
    first.cancel(send);
  }
}

TEST(Rails, end_what_a_vanished_peer_had_begun) {
  for (const char* provider : {"tcp", "net"}) {
    Rails first = open(0, 2, provider);
    auto second = std::make_unique<Rails>(open(1, 2, provider));
    const std::vector<Blob> addresses = {first.address(), second->address()};
    first.connect(addresses);
    second->connect(addresses);
    const auto sent = pattern(64 << 20, 1);
    std::vector<std::byte> got(sent.size());
    MessageRequest recv, send, incoming;
    first.recv(recv, 1, 7, got);
    first.send(send, 1, 8, sent);
    second->send(incoming, 0, 7, sent);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (got.front() != sent.front() && std::chrono::steady_clock::now() < deadline) {
      first.progress();
      second->progress();
    }
    ASSERT_EQ(recv.state, State::posted);
    second.reset();
    for (int round = 0; round < 1000; ++round) {
      first.progress();
    }
    const auto begin = std::chrono::steady_clock::now();
    first.cancel(recv);
    first.cancel(send);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    EXPECT_EQ(recv.state, State::failed);
    EXPECT_EQ(send.state, State::failed);
    const auto after = got;
    first.progress();
    EXPECT_TRUE(got == after);
  }
}

TEST(Rails, carry_random_letters_of_many_threads) {
  constexpr int ranks = 3;
  std::vector<std::unique_ptr<Rails>> rails;
  std::vector<Blob> addresses;
  for (int rank = 0; rank < ranks; ++rank) {
    rails.push_back(std::make_unique<Rails>(open(rank, 2, "net", ranks)));
    addresses.push_back(rails.back()->address());
  }
  for (const auto& one : rails) {
    one->connect(addresses);
  }
  const std::vector<Letter> letters = random_letters(ranks, 300, std::size_t{1} << 20);
  std::atomic<int> busy = ranks;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Rails& mine = *rails[static_cast<std::size_t>(rank)];
      correspond(mine, rank, letters, static_cast<std::uint64_t>(rank));
      --busy;
      while (busy > 0) {  // a peer may still need this rank's part of the protocol
        mine.progress();
        std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(Rails, of_another_number_are_refused_by_name) {
  Rails one = open(0, 1), two = open(1, 2);
  try {
    one.connect(std::vector{one.address(), two.address()});
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    EXPECT_EQ(error.rank(), 1);
    EXPECT_THAT(error.what(), testing::HasSubstr("rank 1 has 2 rails, this rank 1"));
  }
}

}  // namespace
}  // namespace sprat::comm::libfabric
