// How names are looked up on the way to the coordinator, where that takes long.
#include "comm/bootstrap/coordinator_search.hpp"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <atomic>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "sprat/error.hpp"
#include "tests/unit/comm/bootstrap/rendezvous_ranks.hpp"

namespace sprat::comm {
namespace {

/// Names that no name server answers for, and one that is this host's, whatever it knows of names.
constexpr std::string_view unanswered = "unanswered", answered = "answered";
/// When a question for such a name is given up; how many were asked.
std::atomic<Clock::time_point> given_up_at{Clock::time_point{}};
std::atomic<int> questions = 0;

}  // namespace
}  // namespace sprat::comm

// In the place of the C library's.
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  using namespace sprat::comm;
  if (name != nullptr && std::string_view(name).starts_with(unanswered)) {
    ++questions;
    std::this_thread::sleep_until(given_up_at.load());
    return EAI_AGAIN;
  }
  static const auto original =
      reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  const bool own = name != nullptr && name == answered;
  return original(own ? "127.0.0.1" : name, service, hints, found);
}

namespace sprat::comm {
namespace {

/// Where the coordinator is said to be.
class NamedHosts final : public BootstrapPlace {
 public:
  explicit NamedHosts(std::vector<SocketAddress> addresses) : addresses_(std::move(addresses)) {}
  std::string name() const override { return "a place"; }
  int size() const override { return 2; }
  Server server() const override { return {}; }
  std::vector<int> ports() const override { return {0}; }
  std::string token() const override { return "a secret"; }
  Trust trust() const override { return Trust::proof; }
  void publish(int) override {}
  Found look_up(Clock::time_point) override {
    ++looks;
    return {Contact{addresses_, token()}, ""};
  }

  int looks = 0;

 private:
  const std::vector<SocketAddress> addresses_;
};

/// What the error says of a search that takes until its deadline.
std::string failure_of(NamedHosts& place, Clock::time_point deadline) {
  questions = 0;
  boost::asio::io_context io;
  try {
    find_coordinator(io, place, {1, 2, {}}, deadline);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    return error.what();
  }
  return "a coordinator was found";
}

TEST(CoordinatorSearch, asks_for_a_name_once_a_round_however_many_ports_it_tries) {
  std::vector<SocketAddress> ports;
  for (int port = 1; port <= 16; ++port) {
    ports.push_back({std::string(unanswered), port});
  }
  NamedHosts place(ports);
  given_up_at = Clock::now();
  EXPECT_THAT(failure_of(place, Clock::now() + 100ms), testing::HasSubstr("unanswered: Host not"));
  EXPECT_GE(place.looks, 1);
  EXPECT_EQ(questions, place.looks);
}

TEST(CoordinatorSearch, asks_for_no_further_name_after_its_deadline) {
  std::vector<SocketAddress> hosts;
  for (const char* number : {"1", "2", "3"}) {
    hosts.push_back({std::string(unanswered) + number, 1});
  }
  NamedHosts place(hosts);
  const auto deadline = Clock::now() + 100ms;
  given_up_at = deadline;
  EXPECT_THAT(failure_of(place, deadline), testing::HasSubstr("unanswered1: Host not"));
  EXPECT_EQ(questions, 1);
}

TEST(CoordinatorSearch, tries_each_port_of_a_name) {
  boost::asio::io_context io;
  boost::asio::ip::tcp::acceptor listener(
      io, boost::asio::ip::tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0));
  const std::string name(answered);
  NamedHosts place({{name, free_port()}, {name, listener.local_endpoint().port()}});
  failure_of(place, Clock::now() + 500ms);
  listener.non_blocking(true);
  boost::asio::ip::tcp::socket came(io);
  boost::system::error_code nobody;
  listener.accept(came, nobody);
  EXPECT_FALSE(nobody) << nobody.message();
}

}  // namespace
}  // namespace sprat::comm
