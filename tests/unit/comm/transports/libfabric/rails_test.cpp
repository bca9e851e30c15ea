// Messages over two rails, both of them on the loopback.
#include "comm/transports/libfabric/rails.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

#include "comm/transports/libfabric/provider.hpp"
#include "sprat/error.hpp"
#include "tests/unit/comm/transports/letters.hpp"

namespace sprat::comm::libfabric {
namespace {

using State = MessageRequest::State;

/// One of two ranks.
Rails open(int rank, int count) {
  std::vector<std::unique_ptr<Messages>> rails;
  for (int rail = 0; rail < count; ++rail) {
    Info info = std::move(find_rails("tcp", "lo").front());
    rails.push_back(std::make_unique<Messages>(std::move(info), PortRange{}, rank, 2));
  }
  return Rails(std::move(rails));
}

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
