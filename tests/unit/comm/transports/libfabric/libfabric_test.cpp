// Messages through libfabric's tcp provider over the loopback.
#include "comm/transports/libfabric/libfabric.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <functional>
#include <thread>

#include "sprat/error.hpp"
#include "tests/unit/comm/transports/letters.hpp"

namespace sprat::comm {
namespace {

using State = MessageRequest::State;

/// Ranks 0..size-1 in this process, joined over the loopback.
class Wires {
 public:
  explicit Wires(int size, const char* provider = "tcp") {
    Config config;
    config.interface = "lo";
    config.provider = provider;
    std::vector<Blob> addresses;
    for (int rank = 0; rank < size; ++rank) {
      wires_.push_back(open_libfabric(config, rank, size));
      addresses.push_back(wires_.back()->address());
    }
    for (const auto& wire : wires_) {
      wire->connect(addresses);
    }
  }
  MessageTransport& operator[](int rank) { return *wires_[static_cast<std::size_t>(rank)]; }
  void vanish(int rank) { wires_[static_cast<std::size_t>(rank)].reset(); }
  /// Drives every rank until `done` holds; false after 20 s without it.
  bool drive_until(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done() && std::chrono::steady_clock::now() < deadline) {
      for (const auto& wire : wires_) {
        if (wire) {
          wire->progress();
        }
      }
    }
    return done();
  }
  bool drive_until_ended(std::initializer_list<const MessageRequest*> requests) {
    return drive_until([&] {
      return std::all_of(requests.begin(), requests.end(),
                         [](const MessageRequest* one) { return one->state != State::posted; });
    });
  }

 private:
  std::vector<std::unique_ptr<MessageTransport>> wires_;
};

TEST(Libfabric, every_size_arrives_whichever_side_is_first) {
  Wires wires(2);
  // None, what is sent inline, just below and above what travels at once, many segments.
  constexpr std::size_t sizes[] = {0, 1, 64, 65, 16'000, 16'384, 16'385, 200'000, (8 << 20) + 7};
  for (const std::size_t bytes : sizes) {
    for (const bool recv_first : {false, true}) {
      const auto sent = pattern(bytes, bytes + 1);
      std::vector<std::byte> got(bytes + 3);
      MessageRequest send, recv;
      if (recv_first) {
        wires[1].recv(recv, 0, 7, got);
      }
      wires[0].send(send, 1, 7, sent);
      if (!recv_first) {
        for (int round = 0; round < 100; ++round) {
          wires[0].progress();
          wires[1].progress();
        }
        wires[1].recv(recv, 0, 7, got);
      }
      ASSERT_TRUE(wires.drive_until_ended({&send, &recv})) << bytes;
      EXPECT_EQ(send.state, State::done) << bytes;
      ASSERT_EQ(recv.state, State::done) << bytes;
      ASSERT_EQ(recv.bytes, bytes);
      EXPECT_TRUE(std::equal(sent.begin(), sent.end(), got.begin())) << bytes;
    }
  }
}

TEST(Libfabric, equal_tags_keep_their_order_and_others_need_none) {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{100'000}}) {
    Wires wires(2);
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
      return std::all_of(recvs.begin(), recvs.end(),
                         [](const MessageRequest& one) { return one.state == State::done; });
    }));
    EXPECT_EQ(got, sent);
    ASSERT_TRUE(wires.drive_until_ended(
        {&sends[0], &sends[1], &sends[2], &sends[3], &sends[4], &sends[5]}));
  }
}

TEST(Libfabric, a_message_goes_to_the_receive_that_names_its_sender_and_its_whole_tag) {
  Wires wires(3);
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
  EXPECT_EQ(got, sent);
}

TEST(Libfabric, too_long_message_fails_its_receive) {
  for (const std::size_t bytes : {std::size_t{16}, std::size_t{200'000}}) {
    for (const bool recv_first : {false, true}) {
      Wires wires(2);
      const auto sent = pattern(bytes, 3), next = pattern(bytes, 4);
      std::vector<std::byte> small(bytes - 1), got(bytes);
      MessageRequest send, send_next, recv, recv_next;
      if (recv_first) {
        wires[1].recv(recv, 0, 7, small);
      }
      wires[0].send(send, 1, 7, sent);
      wires[0].send(send_next, 1, 7, next);
      if (!recv_first) {
        for (int round = 0; round < 100; ++round) {
          wires[0].progress();
          wires[1].progress();
        }
        wires[1].recv(recv, 0, 7, small);
      }
      wires[1].recv(recv_next, 0, 7, got);
      ASSERT_TRUE(wires.drive_until_ended({&recv}));
      EXPECT_EQ(recv.state, State::failed);
      EXPECT_EQ(recv.error, EMSGSIZE);
      // tcp may drop the connection with it; then what follows must at least be cancelled.
      for (const auto& [rank, request] :
           {std::pair(1, &recv_next), std::pair(0, &send_next), std::pair(0, &send)}) {
        wires[rank].cancel(*request);
        EXPECT_NE(request->state, State::posted);
      }
    }
  }
}

/// As a provider on IP names an endpoint, behind the length of that: its name, a zero byte, a
/// socket address.
int port_of(MessageTransport& wire) {
  const Blob address = wire.address();
  const auto* socket = reinterpret_cast<const std::uint8_t*>(
      address.data() + sizeof(std::uint32_t) + std::string_view(wire.name()).size() + 1);
  return socket[2] << 8 | socket[3];
}

bool is_open(const char* provider, int port) {
  Config config;
  config.interface = "lo";
  config.provider = provider;
  config.ports = {port, port};
  try {
    open_libfabric(config, 0, 1);
    return false;
  } catch (const Error&) {
    return true;
  }
}

TEST(Libfabric, cancelled_receive_leaves_the_wire_intact) {
  Wires wires(2);
  std::vector<std::byte> abandoned(100), got(100);
  const auto sent = pattern(100, 1);
  MessageRequest lost, recv, send;
  wires[1].recv(lost, 0, 1, abandoned);
  wires[1].cancel(lost);
  EXPECT_EQ(lost.state, State::failed);
  EXPECT_EQ(lost.error, ECANCELED);
  wires[1].recv(recv, 0, 1, got);
  wires[0].send(send, 1, 1, sent);
  ASSERT_TRUE(wires.drive_until_ended({&recv, &send}));
  EXPECT_EQ(got, sent);
  EXPECT_EQ(abandoned, std::vector<std::byte>(100));
}

/// A long message that its receiver asks for by itself is under way when its sender gives it up.
void give_up_a_send(const char* provider) {
  Wires wires(2, provider);
  auto sent = pattern(64 << 20, 1);  // more than sockets take
  std::vector<std::byte> small(8);
  MessageRequest send, other, later, greeting, greeted;
  wires[1].recv(greeted, 0, 9, small);
  wires[0].send(greeting, 1, 9, small);
  ASSERT_TRUE(wires.drive_until_ended({&greeting, &greeted}));
  wires[0].send(send, 1, 1, sent);
  wires[0].recv(other, 1, 2, small);
  for (int round = 0; round < 1000; ++round) {
    wires[0].progress();
    wires[1].progress();
  }
  ASSERT_EQ(send.state, State::posted);
  const int port = port_of(wires[0]);
  const auto begin = std::chrono::steady_clock::now();
  wires[0].cancel(send);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_EQ(send.state, State::failed);
  EXPECT_EQ(send.error, ECANCELED);
  wires[0].cancel(other);
  EXPECT_NE(other.state, State::posted);
  wires[0].send(later, 1, 3, small);
  EXPECT_EQ(later.state, State::failed);
  EXPECT_EQ(later.error, ENOTCONN);
  EXPECT_FALSE(wires[0].progress());
  // Only where closing would crash may the endpoint stay.
  EXPECT_TRUE(std::string_view(provider) == "tcp" || !is_open(provider, port));
}

TEST(Libfabric, cancelling_a_send_that_nobody_takes_ends_soon_and_for_good) {
  give_up_a_send("tcp");
}

TEST(Libfabric, an_endpoint_that_cannot_withdraw_a_message_is_closed) { give_up_a_send("net"); }

TEST(Libfabric, a_peer_that_vanishes_neither_hangs_nor_crashes_its_peers) {
  for (const bool spoken_before : {false, true}) {
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{1} << 20}) {
      Wires wires(3);
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
      wires[0].progress();
    }
  }
}

TEST(Libfabric, ranks_without_an_address_are_unreachable) {
  Wires wires(2);
  std::vector<std::byte> data(4);
  for (const int peer : {-1, 2, 1000}) {
    MessageRequest send;
    wires[0].send(send, peer, 1, data);
    EXPECT_EQ(send.error, EHOSTUNREACH);
  }
}

TEST(Libfabric, random_letters_of_many_threads_arrive) {
  constexpr int ranks = 3;
  Wires wires(ranks);
  const std::vector<Letter> letters = random_letters(ranks, 150, std::size_t{1} << 20);
  std::atomic<int> busy = ranks;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      correspond(wires[rank], rank, letters, static_cast<std::uint64_t>(rank));
      --busy;
      while (busy > 0) {  // A peer may still need this rank's part of the protocol.
        wires[rank].progress();
        std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(Libfabric, a_stranger_that_poses_as_a_peer_matches_no_receive) {
  Wires wires(2);
  Config config;
  config.interface = "lo";
  config.provider = "tcp";
  const auto stranger = open_libfabric(config, 1, 2);
  const Blob addresses[] = {wires[0].address(), stranger->address()};
  stranger->connect(addresses);

  std::vector<std::byte> got(1000), forged(1000, std::byte{'x'}), sent = pattern(1000, 1);
  MessageRequest recv, send;
  std::array<MessageRequest, 8> forgeries;
  wires[0].recv(recv, 1, 7, got);
  for (MessageRequest& forgery : forgeries) {
    stranger->send(forgery, 0, 7, forged);
  }
  const auto delivered = [&] {
    stranger->progress();
    return std::ranges::all_of(
        forgeries, [](const MessageRequest& one) { return one.state != State::posted; });
  };
  ASSERT_TRUE(wires.drive_until(delivered));
  EXPECT_EQ(recv.state, State::posted);
  wires[1].send(send, 0, 7, sent);
  ASSERT_TRUE(wires.drive_until_ended({&recv, &send}));
  EXPECT_EQ(recv.state, State::done);
  EXPECT_EQ(got, sent);
}

TEST(Libfabric, listens_within_the_range_of_ports) {
  Config config;
  config.interface = "lo";
  config.provider = "tcp";
  int last = 0;
  std::unique_ptr<MessageTransport> first_wire, second_wire;
  for (int attempt = 0; !second_wire; ++attempt) {
    config.ports = {};
    last = port_of(*open_libfabric(config, 0, 3));  // free a moment ago; the one before may not be
    config.ports = {last - 1, last};
    try {
      first_wire = open_libfabric(config, 0, 3);
      second_wire = open_libfabric(config, 1, 3);
    } catch (const Error& error) {
      ASSERT_LT(attempt, 20) << error.what();
    }
  }
  EXPECT_EQ(port_of(*first_wire), last);
  EXPECT_EQ(port_of(*second_wire), last - 1);
  try {
    open_libfabric(config, 2, 3);
    FAIL() << "was opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_THAT(error.what(), testing::HasSubstr("every port of SPRAT_PORTS="));
  }
}

TEST(Libfabric, an_unknown_provider_is_refused_with_what_there_is) {
  Config config;
  config.provider = "carrier-pigeon";
  try {
    open_libfabric(config, 0, 1);
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_THAT(error.what(), testing::HasSubstr("carrier-pigeon"));
    EXPECT_THAT(error.what(), testing::HasSubstr("tcp;ofi_rxm on lo"));
  }
}

TEST(Libfabric, peers_with_another_provider_are_refused_by_name) {
  Wires wires(2);
  const std::string_view foreign("\15\0\0\0efa\0somewhere", 17);  // one rail, 13 bytes
  const auto bytes = std::as_bytes(std::span(foreign));
  const Blob addresses[] = {{}, Blob(bytes.begin(), bytes.end())};
  try {
    wires[0].connect(addresses);
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    EXPECT_EQ(error.rank(), 1);
    EXPECT_THAT(error.what(), testing::HasSubstr("efa"));
  }
}

}  // namespace
}  // namespace sprat::comm
