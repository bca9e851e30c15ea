// Where metrics are listened for, and what happens while descriptors are lacking.
#include "cli/top/metrics_server.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>
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
#include <cstdlib>
#include <string>
#include <thread>

#include "sprat/error.hpp"

namespace sprat::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// As getaddrinfo() gives addresses: one after another.
struct Candidate {
  explicit Candidate(const char* numbers, Candidate* next = nullptr) {
    address.sin_family = AF_INET;
    inet_pton(AF_INET, numbers, &address.sin_addr);
    info.ai_family = AF_INET;
    info.ai_socktype = SOCK_STREAM;
    info.ai_addr = reinterpret_cast<sockaddr*>(&address);
    info.ai_addrlen = sizeof address;
    info.ai_next = next == nullptr ? nullptr : &next->info;
  }
  Candidate(const Candidate&) = delete;
  Candidate& operator=(const Candidate&) = delete;
  sockaddr_in address{};
  addrinfo info{};
};

// These networks are for examples (RFC 5737): no host is in them.
TEST(MetricsServers, listen_at_the_first_address_of_a_name_that_this_host_has) {
  Candidate here("127.0.0.1");
  const Candidate elsewhere("198.51.100.7", &here);
  const MetricsServer server(elsewhere.info, {.host = "name", .port = "0"});
  EXPECT_THAT(server.url(), StartsWith("http://127.0.0.1:"));
}

TEST(MetricsServers, say_of_each_address_why_nobody_listens_there) {
  Candidate other("203.0.113.7");
  const Candidate one("198.51.100.7", &other);
  try {
    const MetricsServer server(one.info, {.host = "name", .port = "9400"});
    ADD_FAILURE() << server.url();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("name port 9400"), HasSubstr("198.51.100.7: Cannot"),
                                    HasSubstr("203.0.113.7: Cannot"), HasSubstr("HOST:PORT")));
  }
}

int connected_to(int port) {
  const int connection = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return connection;
}

/// What the server sends until it closes, or is silent for long.
std::string scraped(int port) {
  const int connection = connected_to(port);
  const timeval patience{.tv_sec = 20, .tv_usec = 0};
  setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
  EXPECT_GT(::send(connection, request.data(), request.size(), MSG_NOSIGNAL), 0);
  std::string answer;
  std::array<char, 512> room{};
  for (ssize_t got = 1; got > 0;) {
    got = ::recv(connection, room.data(), room.size(), 0);
    answer.append(room.data(), static_cast<std::size_t>(got > 0 ? got : 0));
  }
  close(connection);
  return answer;
}

/// In a process of its own, which may open one descriptor more than it has.
pid_t serve_with_one_descriptor_more(MetricsServer& server) {
  const pid_t process = fork();
  if (process == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int next = dup(STDERR_FILENO);
    close(next);
    const rlimit few{.rlim_cur = static_cast<rlim_t>(next) + 1,
                     .rlim_max = static_cast<rlim_t>(next) + 1};
    setrlimit(RLIMIT_NOFILE, &few);
    try {
      server.serve([] { return std::string("a_metric 7\n"); });
    } catch (...) {
      _exit(1);
    }
  }
  return process;
}

TEST(MetricsServers, outlive_a_lack_of_descriptors_and_rest_meanwhile) {
  MetricsServer server({.host = "127.0.0.1", .port = "0"});
  const std::string url = server.url();
  const int port = std::atoi(url.substr(url.rfind(':') + 1).c_str());
  const pid_t process = serve_with_one_descriptor_more(server);
  const std::array<int, 3> silent = {connected_to(port), connected_to(port), connected_to(port)};
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // it lacks descriptors so long
  for (const int one : silent) {
    close(one);
  }
  EXPECT_THAT(scraped(port), HasSubstr("a_metric 7"));
  kill(process, SIGKILL);
  int status = 0;
  rusage used{};
  ASSERT_EQ(wait4(process, &status, 0, &used), process);
  EXPECT_TRUE(WIFSIGNALED(status)) << "it has ended of itself";
  // A few looks take no millisecond; who never pauses has more even of a core that many want.
  EXPECT_EQ(used.ru_utime.tv_sec + used.ru_stime.tv_sec, 0);
  EXPECT_LT(used.ru_utime.tv_usec + used.ru_stime.tv_usec, 100'000);
}

}  // namespace
}  // namespace sprat::cli
