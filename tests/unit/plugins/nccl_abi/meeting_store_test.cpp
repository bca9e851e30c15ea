// The store of an ncclUniqueId: addresses that lead nowhere.
#include "plugins/nccl_abi/meeting_store.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>

#include "plugins/nccl_abi/meeting_frame.hpp"

namespace sprat::nccl {
namespace {

using namespace std::chrono_literals;

constexpr Address silent_address{false, {127, 0, 0, 2}}, good_address{false, {127, 0, 0, 1}};

/// Listens at an address of the loopback. The system takes connections there, whoever accepts them.
class Listener final {
 public:
  explicit Listener(const Address& address, std::uint16_t port = 0)
      : number_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in bound{};
    socklen_t bytes = sizeof(bound);
    bound.sin_family = AF_INET;
    bound.sin_port = htons(port);
    std::memcpy(&bound.sin_addr, address.bytes.data(), sizeof(bound.sin_addr));
    auto* const at = reinterpret_cast<sockaddr*>(&bound);
    EXPECT_TRUE(::bind(number_, at, bytes) == 0 && ::listen(number_, 8) == 0 &&
                ::getsockname(number_, at, &bytes) == 0)
        << strerror(errno);
    port_ = ntohs(bound.sin_port);
  }
  ~Listener() { ::close(number_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  std::uint16_t port() const { return port_; }
  /// The next connection; below 0 once there are no more.
  int accept() const { return ::accept(number_, nullptr, nullptr); }
  /// Those that have come and that nobody has taken.
  int count_waiting() const {
    EXPECT_EQ(::fcntl(number_, F_SETFL, O_NONBLOCK), 0);
    int waiting = 0;
    for (int one = accept(); one >= 0; one = accept()) {
      ::close(one);
      ++waiting;
    }
    return waiting;
  }
  void stop() const { ::shutdown(number_, SHUT_RDWR); }

 private:
  int number_;
  std::uint16_t port_ = 0;
};

/// Says to everybody that it has done what they ask.
void serve(const Listener& listener) {
  for (int one = listener.accept(); one >= 0; one = listener.accept()) {
    std::array<char, 256> request;
    EXPECT_GT(::recv(one, request.data(), request.size(), 0), 0);
    std::string answer;
    append(answer, AnswerHead{});
    EXPECT_GT(::send(one, answer.data(), answer.size(), MSG_NOSIGNAL), 0);
    ::close(one);
  }
}

TEST(NcclMeetingStore, an_address_that_does_not_answer_is_waited_for_once) {
  const Listener good(good_address);
  const Listener silent(silent_address, good.port());
  std::thread server([&] { serve(good); });
  // Of another host, which has no loopback in common with this one.
  const auto store = store_at({.key = random_key(),
                               .host = host_number() + 1,
                               .port = good.port(),
                               .addresses = {silent_address, good_address}},
                              {.connect = 1s, .answer = 1s});
  EXPECT_NO_THROW(store->set("key", "value"));
  EXPECT_NO_THROW(EXPECT_EQ(store->get("key", 0ms), std::nullopt));
  EXPECT_NO_THROW(store->remove("key"));
  EXPECT_EQ(silent.count_waiting(), 1) << "later questions go to the other one at once";
  good.stop();
  server.join();
}

}  // namespace
}  // namespace sprat::nccl
