// The contract of transport.hpp, held by everything that carries messages between hosts.
#include "tests/unit/comm/transports/wires.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "tests/unit/bytes.hpp"
#include "tests/unit/comm/transports/letters.hpp"
#include "tests/unit/sanitized.hpp"

namespace sprat::comm {
namespace {

using State = MessageRequest::State;

// None, what is sent inline, around what is cut, what is announced, many segments.
const std::vector<std::size_t> lengths = {
    0,      1,       64,      16'384,        exact_bytes - 1, exact_bytes, exact_bytes + 1,
    70'001, 200'000, 1 << 20, (1 << 20) + 1, (8 << 20) + 7};

TEST(Wires, carry_every_length_whichever_side_is_first) {
  for (const WireKind& kind : all_wires()) {
    SCOPED_TRACE(kind.name);
    Wires wires(kind, 2);
    std::uint64_t tag = 0;
    for (const std::size_t bytes : lengths) {
      for (const bool recv_first : {false, true}) {
        const auto sent = pattern(bytes, bytes + ++tag);
        std::vector<std::byte> got(bytes);
        MessageRequest send, recv;
        if (recv_first) {
          wires[1].recv(recv, 0, tag, got);
        }
        wires[0].send(send, 1, tag, sent);
        if (!recv_first) {
          wires.drive(100);
          wires[1].recv(recv, 0, tag, got);
        }
        ASSERT_TRUE(wires.drive_until_ended({&send, &recv})) << bytes;
        ASSERT_EQ(send.state, State::done) << bytes;
        ASSERT_EQ(recv.state, State::done) << bytes;
        ASSERT_EQ(recv.bytes, bytes);
        ASSERT_TRUE(same_bytes(got, sent)) << bytes;
      }
    }
  }
}

TEST(Wires, take_shorter_messages_into_longer_receives) {
  for (const WireKind& kind : all_wires()) {
    SCOPED_TRACE(kind.name);
    Wires wires(kind, 2);
    std::uint64_t tag = 0;
    for (const std::size_t room : part_if_sanitized(lengths, 3)) {
      for (const std::size_t bytes : lengths) {
        if (bytes >= room) {
          continue;
        }
        const auto sent = pattern(bytes, bytes + 1);
        std::vector<std::byte> got(room);
        MessageRequest send, recv;
        wires[1].recv(recv, 0, ++tag, got);
        wires[0].send(send, 1, tag, sent);
        ASSERT_TRUE(wires.drive_until_ended({&send, &recv})) << bytes << " into " << room;
        ASSERT_EQ(recv.state, State::done) << bytes << " into " << room;
        ASSERT_EQ(recv.bytes, bytes);
        ASSERT_TRUE(same_bytes(std::span(got).first(bytes), sent));
      }
    }
  }
}

TEST(Wires, keep_messages_of_equal_tags_in_order_whatever_their_lengths) {
  for (const WireKind& kind : all_wires()) {
    for (const bool recv_first : {false, true}) {
      SCOPED_TRACE(kind.name);
      Wires wires(kind, 2);
      std::vector<MessageRequest> sends(lengths.size()), recvs(lengths.size());
      std::vector<std::vector<std::byte>> sent, got;
      for (std::size_t at = 0; at < lengths.size(); ++at) {
        sent.push_back(pattern(lengths[at], 5));
        got.emplace_back(lengths[at]);
      }
      for (std::size_t at = 0; at < lengths.size(); ++at) {
        if (recv_first) {
          wires[1].recv(recvs[at], 0, 7, got[at]);
        }
        wires[0].send(sends[at], 1, 7, sent[at]);
      }
      if (!recv_first) {
        wires.drive(100);
        for (std::size_t at = 0; at < lengths.size(); ++at) {
          wires[1].recv(recvs[at], 0, 7, got[at]);
        }
      }
      for (std::size_t at = 0; at < lengths.size(); ++at) {
        ASSERT_TRUE(wires.drive_until_ended({&recvs[at], &sends[at]})) << lengths[at];
        ASSERT_EQ(recvs[at].state, State::done) << lengths[at];
        ASSERT_TRUE(same_bytes(got[at], sent[at])) << lengths[at];
      }
    }
  }
}

TEST(Wires, let_messages_of_other_tags_pass) {
  for (const WireKind& kind : all_wires()) {
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{100'000}}) {
      SCOPED_TRACE(kind.name);
      Wires wires(kind, 2);
      constexpr std::size_t count = 6;
      std::vector<std::vector<std::byte>> sent;
      std::vector<std::vector<std::byte>> got(count, std::vector<std::byte>(bytes));
      std::array<MessageRequest, count> sends, recvs;
      for (std::size_t i = 0; i < count; ++i) {
        sent.push_back(pattern(bytes, i));
        wires[0].send(sends[i], 1, i % 2, sent.back());
      }
      for (const std::size_t i : {1u, 0u, 3u, 5u, 2u, 4u}) {
        wires[1].recv(recvs[i], 0, i % 2, got[i]);
      }
      ASSERT_TRUE(wires.drive_until([&] {
        return std::ranges::all_of(recvs, [](const auto& one) { return one.state == State::done; });
      }));
      EXPECT_EQ(got, sent);
      ASSERT_TRUE(wires.drive_until_ended(
          {&sends[0], &sends[1], &sends[2], &sends[3], &sends[4], &sends[5]}));
    }
  }
}

// A megabyte each, so that neither the kernel nor anything else holds all of them: what nobody
// receives yet must not be in the way of what is waited for. (In libfabric's net it is.)
TEST(Wires, carry_a_short_message_past_long_ones_that_nobody_receives) {
  for (const WireKind& kind : all_wires()) {
    if (!kind.is_ours) {
      continue;
    }
    SCOPED_TRACE(kind.name);
    Wires wires(kind, 2);
    constexpr std::size_t count = 24, bytes = 1'000'000;
    const auto sent = pattern(bytes, 1);
    std::array<MessageRequest, count> sends, recvs;
    for (std::size_t at = 0; at < count; ++at) {
      wires[0].send(sends[at], 1, at, sent);
    }
    std::vector<std::byte> small(8), short_one = pattern(8, 2), got(bytes);
    MessageRequest send, recv;
    wires[0].send(send, 1, count, short_one);
    wires[1].recv(recv, 0, count, small);
    ASSERT_TRUE(wires.drive_until_ended({&recv}));
    EXPECT_EQ(small, short_one);
    for (std::size_t at = count; at-- > 0;) {  // in another order than they were sent
      wires[1].recv(recvs[at], 0, at, got);
      ASSERT_TRUE(wires.drive_until_ended({&recvs[at]})) << at;
      ASSERT_EQ(recvs[at].state, State::done);
      ASSERT_TRUE(same_bytes(got, sent)) << at;
    }
    for (const MessageRequest& one : sends) {
      ASSERT_TRUE(wires.drive_until_ended({&one, &send}));
      EXPECT_EQ(one.state, State::done);
    }
  }
}

TEST(Wires, match_the_sender_and_the_whole_tag) {
  for (const WireKind& kind : all_wires()) {
    SCOPED_TRACE(kind.name);
    Wires wires(kind, 3);
    struct Case {
      int from;
      std::uint64_t tag;
    };
    constexpr std::array<Case, 5> cases = {{{1, 0},
                                            {2, 0},
                                            {1, ~std::uint64_t{0} >> 1},
                                            {1, ~std::uint64_t{0} >> 2},
                                            {2, std::uint64_t{1} << (tag_bits - 1)}}};
    std::array<MessageRequest, cases.size()> sends, recvs;
    std::array<std::byte, cases.size()> sent{}, got{};
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const std::size_t other = cases.size() - 1 - i;
      wires[0].recv(recvs[other], cases[other].from, cases[other].tag,
                    std::span(got).subspan(other, 1));
      sent[i] = static_cast<std::byte>(i + 1);
      wires[cases[i].from].send(sends[i], 0, cases[i].tag, std::span(sent).subspan(i, 1));
    }
    ASSERT_TRUE(wires.drive_until_ended({&recvs[0], &recvs[1], &recvs[2], &recvs[3], &recvs[4]}));
    EXPECT_TRUE(same_bytes(got, sent));
  }
}

TEST(Wires, tell_what_has_come_before_a_receive_asked_for_it) {
  for (const WireKind& kind : all_wires()) {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{5}, std::size_t{20'000}}) {
      SCOPED_TRACE(kind.name);
      Wires wires(kind, 2);
      const auto sent = pattern(bytes, 1);
      std::vector<std::byte> got(bytes);
      MessageRequest send, recv;
      EXPECT_FALSE(wires[1].probe(0, 7));
      wires[0].send(send, 1, 7, sent);
      std::optional<std::size_t> told;
      ASSERT_TRUE(wires.drive_until([&] { return (told = wires[1].probe(0, 7)).has_value(); }));
      EXPECT_EQ(*told, bytes);
      EXPECT_FALSE(wires[1].probe(0, 8));
      wires[1].recv(recv, 0, 7, got);
      ASSERT_TRUE(wires.drive_until_ended({&recv, &send}));
      EXPECT_TRUE(same_bytes(got, sent));
      EXPECT_FALSE(wires[1].probe(0, 7));
    }
  }
}

// A receive from any source asks these alone, so one that is missing would never be served.
TEST(Wires, that_know_from_whom_something_has_come_name_all_of_those) {
  for (const WireKind& kind : all_wires()) {
    SCOPED_TRACE(kind.name);
    Wires wires(kind, 4);
    const auto named = [&] {
      const auto peers = wires[0].unasked();
      return peers ? std::vector<int>(peers->begin(), peers->end()) : std::vector<int>{-1};
    };
    const std::vector<int> none = kind.is_ours ? std::vector<int>() : std::vector<int>{-1};
    EXPECT_EQ(named(), none);
    if (!kind.is_ours) {
      continue;  // it cannot tell
    }
    // One is kept, one is announced, since it is long.
    const auto kept = pattern(5, 1), announced = pattern(5 << 20, 2);
    std::vector<std::byte> got_kept(kept.size()), got_announced(announced.size());
    std::array<MessageRequest, 3> sends, recvs;
    wires[3].send(sends[0], 0, 7, kept);
    wires[1].send(sends[1], 0, 8, announced);
    ASSERT_TRUE(wires.drive_until([&] { return named() == std::vector<int>({1, 3}); }));
    wires.drive(10);
    EXPECT_EQ(named(), std::vector<int>({1, 3}));
    wires[0].recv(recvs[0], 3, 7, got_kept);
    ASSERT_TRUE(wires.drive_until_ended({&recvs[0], &sends[0]}));
    EXPECT_EQ(named(), std::vector<int>{1});
    wires[0].recv(recvs[1], 1, 8, got_announced);
    EXPECT_EQ(named(), none);
    ASSERT_TRUE(wires.drive_until_ended({&recvs[1], &sends[1]}));
    wires[3].send(sends[2], 0, 7, kept);
    ASSERT_TRUE(wires.drive_until([&] { return named() == std::vector<int>{3}; }));
    wires[0].recv(recvs[2], 3, 7, got_kept);
    ASSERT_TRUE(wires.drive_until_ended({&recvs[2], &sends[2]}));
    EXPECT_EQ(named(), none);
  }
}

TEST(Wires, refuse_longer_messages_than_their_receives) {
  for (const WireKind& kind : all_wires()) {
    for (const std::size_t bytes : {std::size_t{16}, std::size_t{200'000}, std::size_t{5} << 20}) {
      for (const bool recv_first : {false, true}) {
        SCOPED_TRACE(testing::Message() << bytes << " bytes through " << kind.name);
        Wires wires(kind, 2);
        const auto sent = pattern(bytes, 3), next = pattern(bytes, 4);
        std::vector<std::byte> small(bytes - 1), got(bytes);
        MessageRequest send, send_next, recv, recv_next;
        if (recv_first) {
          wires[1].recv(recv, 0, 7, small);
        }
        wires[0].send(send, 1, 7, sent);
        wires[0].send(send_next, 1, 7, next);
        if (!recv_first) {
          wires.drive(100);
          wires[1].recv(recv, 0, 7, small);
        }
        wires[1].recv(recv_next, 0, 7, got);
        ASSERT_TRUE(wires.drive_until_ended({&recv}));
        EXPECT_EQ(recv.state, State::failed);
        EXPECT_EQ(recv.error, EMSGSIZE);
        if (kind.is_ours) {
          EXPECT_EQ(recv.bytes, bytes);
          ASSERT_TRUE(wires.drive_until_ended({&recv_next, &send_next, &send}));
          EXPECT_EQ(recv_next.state, State::done);
          EXPECT_TRUE(got == next);
        }
        // libfabric may drop the connection with it; then what follows can at least be withdrawn.
        for (const auto& [rank, request] :
             {std::pair(1, &recv_next), std::pair(0, &send_next), std::pair(0, &send)}) {
          wires[rank].cancel(*request);
          EXPECT_NE(request->state, State::posted);
        }
      }
    }
  }
}

TEST(Wires, leave_alone_the_memory_of_a_withdrawn_receive) {
  for (const WireKind& kind : all_wires()) {
    for (const std::size_t bytes : {std::size_t{100}, std::size_t{1} << 20}) {
      SCOPED_TRACE(kind.name);
      Wires wires(kind, 2);
      const auto before = pattern(bytes, 1), sent = pattern(bytes, 2);
      std::vector<std::byte> abandoned = before, got(bytes);
      MessageRequest lost, recv, send;
      wires[1].recv(lost, 0, 1, abandoned);
      wires.drive(10);
      wires[1].cancel(lost);
      EXPECT_EQ(lost.state, State::failed);
      EXPECT_EQ(lost.error, ECANCELED);
      wires[1].recv(recv, 0, 1, got);
      wires[0].send(send, 1, 1, sent);
      ASSERT_TRUE(wires.drive_until_ended({&recv, &send}));
      EXPECT_TRUE(same_bytes(got, sent));
      EXPECT_TRUE(abandoned == before);
    }
  }
}

TEST(Wires, end_what_a_vanished_peer_had_to_do_with) {
  for (const WireKind& kind : all_wires()) {
    if (!kind.is_ours) {
      continue;  // libfabric 1.17 may crash: its own tests look at what it bears
    }
    for (const bool spoken_before : {false, true}) {
      for (const std::size_t bytes : {std::size_t{8}, std::size_t{8} << 20}) {
        SCOPED_TRACE(kind.name);
        Wires wires(kind, 3);
        const auto sent = pattern(bytes, 1);
        std::vector<std::byte> got(bytes), from_third(bytes);
        if (spoken_before) {
          MessageRequest send, recv;
          wires[1].recv(recv, 0, 9, got);
          wires[0].send(send, 1, 9, sent);
          ASSERT_TRUE(wires.drive_until_ended({&send, &recv}));
        }
        MessageRequest send, recv, third_send, third_recv;
        wires[0].recv(recv, 1, 1, got);
        wires[0].send(send, 1, 1, sent);
        wires[0].progress();
        wires.vanish(1);
        // The others still reach each other.
        wires[0].recv(third_recv, 2, 1, from_third);
        wires[2].send(third_send, 0, 1, sent);
        ASSERT_TRUE(wires.drive_until_ended({&third_recv, &third_send}));
        EXPECT_EQ(from_third, sent);
        const auto begin = std::chrono::steady_clock::now();
        wires[0].cancel(recv);
        wires[0].cancel(send);
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
        EXPECT_NE(recv.state, State::posted);
        EXPECT_NE(send.state, State::posted);
        const auto after = got;
        wires.drive(100);
        EXPECT_TRUE(got == after);
      }
    }
  }
}

TEST(Wires, do_not_reach_ranks_without_an_address) {
  for (const WireKind& kind : all_wires()) {
    SCOPED_TRACE(kind.name);
    Wires wires(kind, 2);
    std::vector<std::byte> data(4);
    for (const int peer : {-1, 2, 1000}) {
      MessageRequest send, recv;
      wires[0].send(send, peer, 1, data);
      wires[0].recv(recv, peer, 1, data);
      for (const MessageRequest* one : {&send, &recv}) {
        EXPECT_EQ(one->state, State::failed);
        EXPECT_EQ(one->error, EHOSTUNREACH);
      }
    }
  }
}

TEST(Wires, carry_random_letters_of_many_threads) {
  constexpr int ranks = 3;
  for (const WireKind& kind : all_wires()) {
    SCOPED_TRACE(kind.name);
    Wires wires(kind, ranks);
    std::vector<Letter> letters = random_letters(ranks, 150, std::size_t{3} << 20);
    // Nobody asks a wire to carry messages from a rank to itself.
    std::erase_if(letters, [](const Letter& letter) { return letter.from == letter.to; });
    std::atomic<int> busy = ranks;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        correspond(wires[rank], rank, letters, static_cast<std::uint64_t>(rank));
        --busy;
        while (busy > 0) {  // a peer may still need this rank's part of the protocol
          wires[rank].progress();
          std::this_thread::yield();
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
}

}  // namespace
}  // namespace sprat::comm
