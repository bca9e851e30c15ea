// Messages through libfabric's tcp provider over the loopback.
#include "comm/transports/libfabric/libfabric.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "sprat/error.hpp"
#include "tests/unit/bytes.hpp"
#include "tests/unit/comm/transports/letters.hpp"

namespace sprat::comm {
namespace {

using State = MessageRequest::State;

/// Ranks 0..size-1 in this process, joined over the loopback by one of libfabric's providers.
class FabricWires {
 public:
  explicit FabricWires(int size, const char* provider = "tcp") {
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

/// As a provider on IP names an endpoint, behind the length of that: its name, a zero byte, a
/// socket address.
int port_of(MessageTransport& wire) {
  const Blob address = wire.address();
  const auto* socket = reinterpret_cast<const std::uint8_t*>(
      address.data() + sizeof(std::uint32_t) + std::string_view(wire.name()).size() + 1);
  return socket[2] << 8 | socket[3];
}

bool listens_on(const char* provider, int port) {
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

/// A long message that its receiver asks for by itself is under way when its sender gives it up.
void give_up_a_send(const char* provider) {
  FabricWires wires(2, provider);
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
  EXPECT_TRUE(std::string_view(provider) == "tcp" || !listens_on(provider, port));
}

TEST(Libfabric, cancelling_a_send_that_nobody_takes_ends_soon_and_for_good) {
  give_up_a_send("tcp");
}

TEST(Libfabric, an_endpoint_that_cannot_withdraw_a_message_is_closed) { give_up_a_send("net"); }

TEST(Libfabric, a_peer_that_vanishes_neither_hangs_nor_crashes_its_peers) {
  for (const bool spoken_before : {false, true}) {
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{1} << 20}) {
      FabricWires wires(3);
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

TEST(Libfabric, a_stranger_that_poses_as_a_peer_matches_no_receive) {
  FabricWires wires(2);
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
  EXPECT_TRUE(same_bytes(got, sent));
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
  FabricWires wires(2);
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
