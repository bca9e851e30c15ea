// Who listens, on hosts that answer and on hosts that do not.
#include "comm/knocking.hpp"

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

#include "comm/refuge.hpp"
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
    sockaddr_in address{};
    address.sin_family = AF_INET;
    inet_pton(AF_INET, host, &address.sin_addr);
    socklen_t length = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(*listening, any, length), 0);
    EXPECT_EQ(listen(*listening, backlog), 0);
    getsockname(*listening, any, &length);
    door = {host, ntohs(address.sin_port)};
  }
  /// As a host that is down: from now on connections to it are neither taken nor refused.
  void fall_silent() {
    for (int one = 0; one < 3; ++one) {
      waiting.push_back(make_socket());
      fcntl(*waiting.back(), F_SETFL, O_NONBLOCK);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<std::uint16_t>(door.port));
      inet_pton(AF_INET, door.host.c_str(), &address.sin_addr);
      (void)connect(*waiting.back(), reinterpret_cast<sockaddr*>(&address), sizeof address);
    }
  }

  Socket listening = make_socket();
  std::vector<Socket> waiting;
  Door door;
};

/// Doors of that many processes of a host that is down.
struct SilentHost {
  SilentHost(const char* host, int processes) {
    for (int process = 0; process < processes; ++process) {
      listeners.push_back(std::make_unique<Listener>(host, 0));
      listeners.back()->fall_silent();
      doors.push_back({listeners.back()->door});
    }
  }
  std::vector<std::unique_ptr<Listener>> listeners;
  std::vector<std::vector<Door>> doors;
};

Door closed_door() { return Listener("127.0.0.1").door; }

TEST(Knocking, tells_who_listens_of_many_in_the_time_of_one) {
  const SilentHost down("127.0.0.2", 5);
  const Listener live("127.0.0.1");
  std::vector<std::vector<Door>> asked = down.doors;
  asked.push_back({live.door});
  asked.push_back({closed_door()});
  asked.push_back({closed_door(), live.door});
  asked.push_back({down.doors[0][0], live.door});  // one of its networks is down
  asked.push_back({});
  const auto begin = Clock::now();
  EXPECT_THAT(who_listens(asked), testing::ElementsAre(false, false, false, false, false, true,
                                                       false, true, true, false));
  EXPECT_LT(Clock::now() - begin, 6s);  // five after one another take fifteen
}

TEST(Refuge, without_several_hosts_is_left_as_fast_as_without_one_rank) {
  Config config;
  config.interface = "lo";
  std::vector<std::vector<Door>> doors;
  const SilentHost one("127.0.0.2", 4), other("127.0.0.3", 4);
  for (const SilentHost* host : {&one, &other}) {
    doors.insert(doors.end(), host->doors.begin(), host->doors.end());
  }
  const auto refuge = Refuge::open(config);
  doors.push_back(refuge->doors());
  refuge->settle(static_cast<int>(doors.size()) - 1, doors, "a secret");
  const auto begin = Clock::now();
  const auto gathered = refuge->gather(1, begin + 100s);
  EXPECT_THAT(gathered.numbers, testing::ElementsAre(8));
  EXPECT_LT(Clock::now() - begin, 15s);  // eight after one another take twenty-four
}

}  // namespace
}  // namespace sprat::comm
