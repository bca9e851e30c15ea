// Blocks over sockets, and strangers at the door.
#include "io/caches/socket_peers.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sprat/error.hpp"
#include "tests/unit/io/caches/blocks.hpp"

namespace sprat::io {
namespace {

using namespace std::chrono_literals;

const std::string peers_secret = "a secret of the job's";

/// Hosts of one process that reach each other over sockets.
struct Sockets {
  explicit Sockets(int count, const std::vector<std::string>& secrets = {}) {
    std::vector<PeerListener> listeners;
    for (int host = 0; host < count; ++host) {
      listeners.emplace_back("127.0.0.1");
      addresses.push_back({.name = "host" + std::to_string(host),
                           .address = "127.0.0.1",
                           .port = listeners.back().port()});
    }
    for (int host = 0; host < count; ++host) {
      const auto index = static_cast<std::size_t>(host);
      peers.push_back(std::make_unique<SocketPeers>(
          std::move(listeners[index]),
          SocketPeersOptions{.hosts = addresses,
                             .here = index,
                             .secret = secrets.empty() ? peers_secret : secrets[index],
                             .queued_bytes = 4 << 20,
                             .inbox_bytes = 4 << 20}));
    }
  }
  std::vector<PeerAddress> addresses;
  std::vector<std::unique_ptr<SocketPeers>> peers;
};

PeerHeader message_header(PeerVerb verb, std::uint64_t number, std::uint32_t bytes) {
  return {.verb = verb,
          .number = number,
          .key = {.file = made_up_file(1), .block = number},
          .offset = 0,
          .bytes = bytes,
          .checksum = 0};
}

/// As many as come within a time.
std::vector<ReceivedBlock> receive_some(SocketPeers& peers, std::size_t count,
                                        std::chrono::milliseconds longest = 30s) {
  std::vector<ReceivedBlock> all;
  const auto end = std::chrono::steady_clock::now() + longest;
  while (all.size() < count && std::chrono::steady_clock::now() < end) {
    for (ReceivedBlock& one : peers.receive(20ms)) {
      all.push_back(std::move(one));
    }
  }
  return all;
}

/// Until it is taken; the connection may have to be made anew.
bool send_until_taken(SocketPeers& from, std::size_t to, const PeerHeader& header) {
  const auto end = std::chrono::steady_clock::now() + 30s;
  while (std::chrono::steady_clock::now() < end) {
    if (from.send(to, header, {}, nullptr)) {
      return true;
    }
    from.receive(10ms);
  }
  return false;
}

/// A process of ours that does something and then holds what it has until it is killed.
class ForkedHolder {
 public:
  template <class Action>
  explicit ForkedHolder(const Action& action) {
    std::array<int, 2> ready{};
    EXPECT_EQ(pipe2(ready.data(), O_CLOEXEC), 0);
    process_ = fork();
    if (process_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const char done = action() ? 'y' : 'n';
      static_cast<void>(!::write(ready[1], &done, 1));
      pause();
      _exit(0);
    }
    char done = 'n';
    EXPECT_EQ(::read(ready[0], &done, 1), 1);
    EXPECT_EQ(done, 'y');
    close(ready[0]);
    close(ready[1]);
  }
  ~ForkedHolder() { end(); }
  ForkedHolder(const ForkedHolder&) = delete;
  ForkedHolder& operator=(const ForkedHolder&) = delete;

  void end() {
    if (const pid_t process = std::exchange(process_, -1); process > 0) {
      kill(process, SIGKILL);
      waitpid(process, nullptr, 0);
    }
  }

 private:
  pid_t process_ = -1;
};

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

bool comes_to(std::ptrdiff_t descriptors) {
  const auto end = std::chrono::steady_clock::now() + 30s;
  while (open_descriptors() != descriptors && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(1ms);
  }
  return open_descriptors() == descriptors;
}

std::chrono::microseconds processor_time() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return std::chrono::seconds(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         std::chrono::microseconds(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

void connect_stranger(int stranger, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(stranger, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
}

// As workers of PyTorch's DataLoader do, which are forked. While one lives epoll would tell of the
// end that the thread has dealt with, and have it look without a pause.
TEST(SocketPeers, rest_when_a_child_holds_a_connection_that_has_ended) {
  Sockets job(1);
  const std::ptrdiff_t before = open_descriptors();
  ForkedHolder client([&] {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(job.addresses[0].port);
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    return connect(socket(AF_INET, SOCK_STREAM, 0), reinterpret_cast<sockaddr*>(&address),
                   sizeof address) == 0;
  });
  ASSERT_TRUE(comes_to(before + 1)) << "the connection is not taken";
  const ForkedHolder heir([] { return true; });
  client.end();
  ASSERT_TRUE(comes_to(before)) << "its end is not seen";
  const std::chrono::microseconds begin = processor_time();
  std::this_thread::sleep_for(500ms);
  // Two looks take no millisecond; who never pauses has more even of a core that many want.
  EXPECT_LT(processor_time() - begin, 10ms);
}

// A connection that cannot be taken stays where epoll tells of it.
TEST(SocketPeers, rest_while_no_descriptor_is_left_and_say_so_once) {
  Sockets job(2);
  const int stranger = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  testing::internal::CaptureStderr();
  const int next = dup(stranger);
  close(next);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(next);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  connect_stranger(stranger, job.addresses[1].port);
  const std::chrono::microseconds begin = processor_time();
  std::this_thread::sleep_for(700ms);
  const std::chrono::microseconds used = processor_time() - begin;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_LT(used, 100ms) << "a thread that spun took seven times as much";
  ASSERT_TRUE(send_until_taken(*job.peers[0], 1, message_header(PeerVerb::ask, 1, 100)));
  EXPECT_EQ(receive_some(*job.peers[1], 1).size(), 1u);
  const std::string said = testing::internal::GetCapturedStderr();
  const std::size_t first = said.find("raise ulimit -n");
  EXPECT_NE(first, said.npos) << said;
  EXPECT_EQ(said.find("raise ulimit -n", first + 1), said.npos) << said;
  close(stranger);
}

TEST(SocketPeers, bring_messages_of_all_lengths_between_all_hosts) {
  Sockets job(3);
  for (std::size_t from = 0; from < 3; ++from) {
    for (std::size_t to = 0; to < 3; ++to) {
      for (const std::uint32_t bytes : {1u, 5000u, 1u << 20}) {
        const auto body = std::make_shared<const std::vector<std::byte>>(
            made_up_block({.file = made_up_file(static_cast<int>(from)), .block = to}, bytes));
        EXPECT_TRUE(
            job.peers[from]->send(to, message_header(PeerVerb::have, bytes, bytes), *body, body));
        EXPECT_TRUE(
            job.peers[from]->send(to, message_header(PeerVerb::ask, bytes, bytes), {}, nullptr));
      }
    }
  }
  for (std::size_t to = 0; to < 3; ++to) {
    std::vector<int> come(3);
    for (const ReceivedBlock& one : receive_some(*job.peers[to], 18)) {
      ++come[one.from];
      const bool has_body = one.header.verb == PeerVerb::have;
      EXPECT_EQ(one.header, message_header(one.header.verb, one.header.number, one.header.bytes));
      EXPECT_EQ(one.body,
                has_body
                    ? made_up_block({.file = made_up_file(static_cast<int>(one.from)), .block = to},
                                    one.header.bytes)
                    : std::vector<std::byte>());
    }
    EXPECT_EQ(come, (std::vector<int>{6, 6, 6})) << to;
  }
}

TEST(SocketPeers, hear_nobody_who_does_not_know_the_secret) {
  Sockets job(2, {peers_secret, "another secret of a job"});
  ASSERT_TRUE(job.peers[0]->send(1, message_header(PeerVerb::ask, 1, 100), {}, nullptr));
  ASSERT_TRUE(job.peers[1]->send(0, message_header(PeerVerb::ask, 1, 100), {}, nullptr));
  EXPECT_TRUE(receive_some(*job.peers[0], 1, 500ms).empty());
  EXPECT_TRUE(receive_some(*job.peers[1], 1, 100ms).empty());
}

int connected_stranger(std::uint16_t port) {
  const int stranger = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  connect_stranger(stranger, port);
  return stranger;
}

TEST(SocketPeers, are_not_disturbed_by_strangers) {
  Sockets job(2);
  std::vector<int> strangers;
  const std::vector<std::byte> nonsense(100'000, std::byte{7});
  for (int one = 0; one < 40; ++one) {
    strangers.push_back(connected_stranger(job.addresses[1].port));
    if (one % 2 == 0) {
      static_cast<void>(
          !::send(strangers.back(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
    }
  }
  // Should its first connection have been one too many, it is made anew.
  std::vector<ReceivedBlock> come;
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (come.empty() && std::chrono::steady_clock::now() < end) {
    ASSERT_TRUE(send_until_taken(*job.peers[0], 1, message_header(PeerVerb::ask, 5, 100)));
    come = receive_some(*job.peers[1], 1, 500ms);
    while (come.empty() && !strangers.empty()) {
      ::close(strangers.back());
      strangers.pop_back();
    }
  }
  ASSERT_FALSE(come.empty());
  EXPECT_EQ(come[0].header.number, 5u);
  for (const int stranger : strangers) {
    ::close(stranger);
  }
}

TEST(SocketPeers, take_no_more_than_their_bound_for_a_host_that_does_not_read) {
  Sockets job(2);
  const auto body = shared_block({.file = made_up_file(1), .block = 0});
  int taken = 0;
  // Nobody receives on the other side: its inbox fills, then the wire, then the queue.
  const auto end = std::chrono::steady_clock::now() + 3s;
  while (std::chrono::steady_clock::now() < end) {
    const bool one = job.peers[0]->send(1, message_header(PeerVerb::have, 0, 1 << 20), *body, body);
    taken += one ? 1 : 0;
    if (!one) {
      std::this_thread::yield();
    }
  }
  // Inbox and queue of 4 MiB each, one message more each, and what the kernel keeps.
  EXPECT_GT(taken, 4);
  EXPECT_LT(taken, 64);
  EXPECT_FALSE(job.peers[0]->send(1, message_header(PeerVerb::have, 0, 1 << 20), *body, body));
  // Once somebody does, all of it comes.
  EXPECT_EQ(receive_some(*job.peers[1], static_cast<std::size_t>(taken)).size(),
            static_cast<std::size_t>(taken));
}

TEST(SocketPeers, reach_a_host_again_that_was_gone) {
  Sockets job(2);
  ASSERT_TRUE(job.peers[0]->send(1, message_header(PeerVerb::ask, 1, 100), {}, nullptr));
  ASSERT_EQ(receive_some(*job.peers[1], 1).size(), 1u);
  const std::uint16_t port = job.addresses[1].port;
  job.peers[1].reset();
  // Some are lost on the way to a host that is gone; then none is taken.
  const auto end = std::chrono::steady_clock::now() + 30s;
  bool refused = false;
  while (!refused && std::chrono::steady_clock::now() < end) {
    refused = !job.peers[0]->send(1, message_header(PeerVerb::ask, 2, 100), {}, nullptr);
    job.peers[0]->receive(5ms);
  }
  EXPECT_TRUE(refused);
  job.peers[1] = std::make_unique<SocketPeers>(
      PeerListener("127.0.0.1", port),
      SocketPeersOptions{.hosts = job.addresses, .here = 1, .secret = peers_secret});
  std::vector<ReceivedBlock> come;
  while (come.empty() && std::chrono::steady_clock::now() < end) {
    ASSERT_TRUE(send_until_taken(*job.peers[0], 1, message_header(PeerVerb::ask, 3, 100)));
    come = receive_some(*job.peers[1], 1, 500ms);
  }
  ASSERT_FALSE(come.empty());
  EXPECT_EQ(come.back().header.number, 3u);
}

TEST(SocketPeers, say_what_is_wrong_with_an_address) {
  EXPECT_THROW(PeerListener("localhost"), Error);
  EXPECT_THROW(PeerListener("192.0.2.1"), Error) << "no address of this host";
  const std::vector<PeerAddress> hosts = {{.name = "a", .address = "127.0.0.1", .port = 1}};
  EXPECT_THROW(
      SocketPeers(PeerListener("127.0.0.1"), {.hosts = hosts, .here = 1, .secret = peers_secret}),
      Error);
  EXPECT_THROW(
      SocketPeers(PeerListener("127.0.0.1"), {.hosts = hosts, .here = 0, .secret = "short"}),
      Error);
}

}  // namespace
}  // namespace sprat::io
