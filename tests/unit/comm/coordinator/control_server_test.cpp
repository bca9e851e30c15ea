// Who is let in after a connection that the coordinator could not take.
#include "comm/coordinator/control_server.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/address_v4.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cstdint>
#include <utility>

#include "comm/coordinator/control_greeting.hpp"
#include "tests/unit/comm/unwatched.hpp"

namespace sprat::comm {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

/// Whether something comes, be it the end, within a time that is ample.
bool hears(tcp::socket& socket) {
  pollfd polled{socket.native_handle(), POLLIN, 0};
  return ::poll(&polled, 1, 10'000) == 1;
}

// The kernel refuses to watch the number that the first connection's socket gets, and no other.
TEST(ControlServer, lets_others_in_after_a_connection_that_the_kernel_does_not_watch) {
  ControlLoop loop;
  Listening listening = *listen_on(loop.io(), 0);
  const tcp::endpoint there(asio::ip::address_v4::loopback(),
                            static_cast<std::uint16_t>(listening.port));
  const auto server =
      ControlServer::start(loop, std::move(listening), {"a secret", Trust::proof}, {0, 2, {}});
  asio::io_context io;
  tcp::socket first(io, tcp::v4()), second(io, tcp::v4());
  const int next = ::fcntl(first.native_handle(), F_DUPFD_CLOEXEC, 0);
  ::close(next);
  bool served = false;
  loop.run([&] {
    served = watch_none_of(static_cast<std::uint32_t>(next), static_cast<std::uint32_t>(next));
  });
  if (!served) {
    server->close();
    GTEST_SKIP() << "needs a kernel that filters system calls of a thread";
  }
  first.connect(there);
  ASSERT_TRUE(hears(first)) << "nobody closes it";
  char none = 0;
  boost::system::error_code ended;
  asio::read(first, asio::buffer(&none, 1), ended);
  EXPECT_EQ(ended, asio::error::eof);

  const int holder = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
  EXPECT_EQ(holder, next) << "what was refused is still open";
  second.connect(there);
  const Greeting greeting;
  asio::write(second, std::array{asio::buffer(greeting.magic), asio::buffer(greeting.nonce)});
  EXPECT_TRUE(hears(second)) << "nobody accepts any more";
  second.close();
  ::close(holder);
  server->close();
}

}  // namespace
}  // namespace sprat::comm
