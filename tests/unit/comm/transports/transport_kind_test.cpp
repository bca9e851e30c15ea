// The table of transports.
#include "comm/transports/transport_kind.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "sprat/error.hpp"
#include "tests/unit/bytes.hpp"

namespace sprat::comm {
namespace {

using State = MessageRequest::State;

TEST(TransportKind, one_is_chosen_for_each_scope) {
  EXPECT_STREQ(choose_transport(TransportKind::Scope::host, Config()).name, "shm");
  const bool rdma = std::filesystem::exists("/sys/class/infiniband") &&
                    !std::filesystem::is_empty("/sys/class/infiniband");
  for (const auto& [provider, wire] :
       {std::pair{"", rdma ? "libfabric" : "sockets"}, std::pair{"sockets", "sockets"},
        std::pair{"libfabric", "libfabric"}, std::pair{"tcp", "libfabric"}}) {
    Config config;
    config.provider = provider;
    EXPECT_STREQ(choose_transport(TransportKind::Scope::network, config).name, wire) << provider;
  }
}

TEST(TransportKind, none_carries_plain_what_shall_be_encrypted) {
  Config config;
  config.encrypt = true;
  config.token = "0123456789abcdef";
  config.interface = "lo";
  EXPECT_STREQ(choose_transport(TransportKind::Scope::network, config).name, "sockets");
  for (const TransportKind* kind : all_transport_kinds()) {
    if (kind->scope == TransportKind::Scope::network && std::string_view(kind->name) != "sockets") {
      EXPECT_THROW(kind->open({.config = config, .rank = 0, .size = 2, .ranks = {0, 1}}), Error)
          << kind->name;
    }
  }
  // Without a secret our own do not open either.
  config.token = "";
  EXPECT_THROW(choose_transport(TransportKind::Scope::network, config)
                   .open({.config = config, .rank = 0, .size = 2, .ranks = {0, 1}}),
               Error);
}

/// Opened as joining does it: whatever the table says is all that it takes.
TEST(TransportKind, each_carries_a_message_between_two_ranks) {
  for (const TransportKind* kind : all_transport_kinds()) {
    Config config;
    config.interface = "lo";
    config.provider = kind->name;
    ASSERT_TRUE(kind->available(config)) << kind->name;
    EXPECT_NE(kind->describe(config), "") << kind->name;
    const std::size_t bytes = kind->control_bytes(2);
    struct alignas(64) Line {
      std::byte bytes[64];
    };
    std::vector<std::vector<Line>> memory(2, std::vector<Line>(bytes / sizeof(Line) + 1));
    std::vector<const std::byte*> theirs;
    for (const auto& lines : memory) {
      theirs.push_back(lines.front().bytes);
    }
    std::vector<std::unique_ptr<MessageTransport>> ranks;
    std::vector<Blob> addresses;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.push_back(
          kind->open({.config = config,
                      .rank = rank,
                      .size = 2,
                      .ranks = {0, 1},
                      .mine = {memory[static_cast<std::size_t>(rank)].front().bytes, bytes},
                      .theirs = theirs}));
      addresses.push_back(ranks.back()->address());
    }
    for (const auto& rank : ranks) {
      rank->connect(addresses);
    }
    const std::vector<std::byte> sent(100, std::byte{42});
    std::vector<std::byte> got(100);
    MessageRequest send, recv;
    ranks[1]->recv(recv, 0, 7, got);
    ranks[0]->send(send, 1, 7, sent);
    for (int round = 0;
         round < 10'000'000 && (send.state == State::posted || recv.state == State::posted);
         ++round) {
      ranks[0]->progress();
      ranks[1]->progress();
    }
    EXPECT_EQ(send.state, State::done) << kind->name;
    EXPECT_EQ(recv.state, State::done) << kind->name;
    EXPECT_TRUE(same_bytes(got, sent)) << kind->name;
  }
}

}  // namespace
}  // namespace sprat::comm
