// Connections over the loopback, both ends in one thread.
#include "comm/endpoint/connection.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "comm/endpoint/attempt.hpp"
#include "comm/endpoint/devices.hpp"
#include "comm/endpoint/listener.hpp"
#include "sprat/error.hpp"

namespace sprat::comm::endpoint {
namespace {

using namespace std::chrono_literals;
using State = MessageRequest::State;

/// The loopback, as if it were worth so many streams.
Device device(std::size_t streams) {
  Config config;
  config.interface = "lo";
  Device one = find_devices(config).at(0);
  one.streams = streams;
  return one;
}

void poll_until(const std::function<bool()>& is_so) {
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (!is_so()) {
    ASSERT_LT(std::chrono::steady_clock::now(), end) << "nothing comes of it";
  }
}

struct Ends {
  std::unique_ptr<Connection> near, far;
};

Ends join(Listener& listener, const Device& from) {
  Ends ends;
  Attempt attempt(from, listener.invitation());
  poll_until([&] {
    ends.near = ends.near ? std::move(ends.near) : attempt.poll();
    ends.far = ends.far ? std::move(ends.far) : listener.accept();
    return ends.near && ends.far;
  });
  return ends;
}

std::vector<std::byte> numbers(std::size_t bytes, std::size_t seed) {
  std::vector<std::byte> out(bytes);
  for (std::size_t at = 0; at < bytes; ++at) {
    out[at] = static_cast<std::byte>((at * 37 + at / 253 + seed) & 0xff);
  }
  return out;
}

TEST(EndpointConnection, carries_messages_both_ways_over_any_number_of_streams) {
  for (const std::size_t streams : {1u, 2u, 4u, 8u}) {
    SCOPED_TRACE(streams);
    Listener listener(device(streams), {});
    EXPECT_EQ(listener.invitation().streams, streams);
    const Ends ends = join(listener, device(1));
    const std::vector<std::size_t> lengths = {0, 1,     20'000, 100'000, 1 << 20, (3 << 20) + 5,
                                              7, 50'000};
    std::vector<std::vector<std::byte>> out, in;
    std::vector<MessageRequest> requests(4 * lengths.size());
    std::size_t next = 0;
    for (std::size_t at = 0; at < lengths.size(); ++at) {
      for (Connection* end : {ends.near.get(), ends.far.get()}) {
        Connection& other = end == ends.near.get() ? *ends.far : *ends.near;
        out.push_back(numbers(lengths[at], next));
        in.emplace_back(lengths[at]);
        // Moving a vector leaves its memory where it is, so requests may point there.
        end->send(requests[next++], at % 2, out.back());
        other.recv(requests[next++], at % 2, in.back());
      }
    }
    poll_until([&] {
      ends.near->progress();
      ends.far->progress();
      return std::all_of(requests.begin(), requests.end(),
                         [](const MessageRequest& one) { return one.state == State::done; });
    });
    EXPECT_EQ(in, out);
  }
}

TEST(EndpointConnection, several_at_a_time_come_of_one_listener) {
  Listener listener(device(4), {});
  std::vector<std::unique_ptr<Attempt>> attempts;
  std::vector<std::unique_ptr<Connection>> near(3), far;
  for (std::size_t at = 0; at < near.size(); ++at) {
    attempts.push_back(std::make_unique<Attempt>(device(1), listener.invitation()));
  }
  poll_until([&] {
    bool all = true;
    for (std::size_t at = 0; at < near.size(); ++at) {
      near[at] = near[at] ? std::move(near[at]) : attempts[at]->poll();
      all = all && near[at];
    }
    if (auto one = listener.accept()) {
      far.push_back(std::move(one));
    }
    return all && far.size() == near.size();
  });
  // Each says its number; the far ends hear three different ones.
  std::vector<MessageRequest> sends(3), receives(3);
  std::vector<std::byte> said = {std::byte{1}, std::byte{2}, std::byte{4}}, heard(3);
  for (std::size_t at = 0; at < 3; ++at) {
    near[at]->send(sends[at], 0, {&said[at], 1});
    far[at]->recv(receives[at], 0, {&heard[at], 1});
  }
  poll_until([&] {
    for (std::size_t at = 0; at < 3; ++at) {
      near[at]->progress();
      far[at]->progress();
    }
    return std::all_of(receives.begin(), receives.end(),
                       [](const MessageRequest& one) { return one.state == State::done; });
  });
  EXPECT_EQ(heard[0] | heard[1] | heard[2], std::byte{7});
}

TEST(EndpointConnection, whoever_waits_for_one_that_is_closed_is_told) {
  Listener listener(device(2), {});
  Ends ends = join(listener, device(1));
  std::vector<std::byte> sent = numbers(100, 1), first(100), second(100);
  MessageRequest send, whole, never, late;
  ends.near->send(send, 0, sent);
  ends.far->recv(never, 1, second);
  poll_until([&] { return ends.near->progress(), send.state == State::done; });
  ends.near.reset();
  poll_until([&] { return ends.far->progress(), never.state != State::posted; });
  EXPECT_EQ(never.state, State::failed);
  EXPECT_EQ(never.error, ECONNRESET);
  EXPECT_EQ(ends.far->error(), ECONNRESET);
  ends.far->recv(whole, 0, first);
  EXPECT_EQ(whole.state, State::done) << "what had come before stays";
  EXPECT_EQ(first, sent);
  ends.far->send(late, 0, sent);
  EXPECT_EQ(late.state, State::failed);
}

TEST(EndpointConnection, nobody_connects_without_the_key_or_without_a_listener) {
  auto listener = std::make_unique<Listener>(device(1), PortRange{});
  Invitation wrong = listener->invitation();
  wrong.key[0] ^= std::byte{1};
  Attempt stranger(device(1), wrong);
  EXPECT_THROW(poll_until([&] { return listener->accept() || stranger.poll(); }), Error);
  const Invitation right = listener->invitation();
  EXPECT_TRUE(join(*listener, device(1)).near) << "it takes others as before";
  listener.reset();
  try {
    Attempt late(device(1), right);
    poll_until([&] { return late.poll() != nullptr; });
    ADD_FAILURE() << "nobody listens there";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_NE(std::string(error.what()).find("set SPRAT_INTERFACE"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace sprat::comm::endpoint
