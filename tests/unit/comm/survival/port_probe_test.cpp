// Who listens, on hosts that answer and on hosts that do not.
#include "comm/survival/port_probe.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "comm/survival/survivor_listener.hpp"
#include "sprat/error.hpp"

namespace sprat::comm {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

struct Closed {
  void operator()(const int* descriptor) const {
    close(*descriptor);
    delete descriptor;
  }
};
using Socket = std::unique_ptr<int, Closed>;

Socket make_socket() { return Socket(new int(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))); }

/// Listens at a free port of `host`, with room for `backlog` connections that nobody accepts.
struct Listener {
  explicit Listener(const char* host, int backlog = 100) {
    sockaddr_in bound{};
    bound.sin_family = AF_INET;
    inet_pton(AF_INET, host, &bound.sin_addr);
    socklen_t length = sizeof bound;
    auto* const any = reinterpret_cast<sockaddr*>(&bound);
    EXPECT_EQ(bind(*listening, any, length), 0);
    EXPECT_EQ(listen(*listening, backlog), 0);
    getsockname(*listening, any, &length);
    address = {host, ntohs(bound.sin_port)};
  }
  /// As a host that is down: from now on connections to it are neither taken nor refused.
  void fall_silent() {
    for (int one = 0; one < 3; ++one) {
      waiting.push_back(make_socket());
      fcntl(*waiting.back(), F_SETFL, O_NONBLOCK);
      sockaddr_in target{};
      target.sin_family = AF_INET;
      target.sin_port = htons(static_cast<std::uint16_t>(address.port));
      inet_pton(AF_INET, address.host.c_str(), &target.sin_addr);
      (void)connect(*waiting.back(), reinterpret_cast<sockaddr*>(&target), sizeof target);
    }
  }

  Socket listening = make_socket();
  std::vector<Socket> waiting;
  SocketAddress address;
};

/// Addresses of that many processes of a host that is down.
struct SilentHost {
  SilentHost(const char* host, int processes) {
    for (int process = 0; process < processes; ++process) {
      listeners.push_back(std::make_unique<Listener>(host, 0));
      listeners.back()->fall_silent();
      addresses.push_back({listeners.back()->address});
    }
  }
  std::vector<std::unique_ptr<Listener>> listeners;
  std::vector<std::vector<SocketAddress>> addresses;
};

SocketAddress closed_address() { return Listener("127.0.0.1").address; }

TEST(ProbingPorts, tells_who_listens_of_many_in_the_time_of_one) {
  const SilentHost down("127.0.0.2", 5);
  const Listener live("127.0.0.1");
  std::vector<std::vector<SocketAddress>> asked = down.addresses;
  asked.push_back({live.address});
  asked.push_back({closed_address()});
  asked.push_back({closed_address(), live.address});
  asked.push_back({down.addresses[0][0], live.address});  // one of its networks is down
  asked.push_back({});
  const auto begin = Clock::now();
  EXPECT_THAT(who_listens(asked), testing::ElementsAre(false, false, false, false, false, true,
                                                       false, true, true, false));
  EXPECT_LT(Clock::now() - begin, 6s);  // five after one another take fifteen
}

TEST(SurvivorListener, without_several_hosts_is_left_as_fast_as_without_one_rank) {
  Config config;
  config.interface = "lo";
  std::vector<std::vector<SocketAddress>> addresses;
  const SilentHost one("127.0.0.2", 4), other("127.0.0.3", 4);
  for (const SilentHost* host : {&one, &other}) {
    addresses.insert(addresses.end(), host->addresses.begin(), host->addresses.end());
  }
  const auto survivor_listener = SurvivorListener::open(config);
  addresses.push_back(survivor_listener->addresses());
  survivor_listener->settle(static_cast<int>(addresses.size()) - 1, AddressBook(addresses),
                            "a secret");
  const auto begin = Clock::now();
  const auto gathered = survivor_listener->gather(1, begin + 100s);
  EXPECT_THAT(gathered.numbers, testing::ElementsAre(8));
  EXPECT_LT(Clock::now() - begin, 15s);  // eight after one another take twenty-four
}

}  // namespace
}  // namespace sprat::comm
