// How a connection of the control channel ends.
#include "comm/coordinator/control_connection.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

namespace sprat::comm {
namespace {

using namespace std::chrono_literals;

// The coordinator says one thing to all ranks in turn. If one's end were told in the midst of that,
// the ranks behind it would hear of its loss before what the others have heard.
TEST(ControlConnection, ends_for_its_peer_that_does_not_read_and_not_within_a_send) {
  boost::asio::io_context io;
  auto [near, far] = socket_pair(io);  // nobody reads what comes to `far`
  std::string how;
  const auto connection = ControlConnection::start(
      std::move(near), max_frame_bytes,
      {.received = [](Frame) {}, .ended = [&how](std::string_view said) { how = said; }});
  const auto frame = std::make_shared<const Blob>(max_frame_bytes);
  constexpr int more_than_is_kept = 6;
  for (int sent = 0; sent < more_than_is_kept; ++sent) {
    connection->send(frame);
    EXPECT_EQ(how, "") << sent;
  }
  io.run_for(20s);
  EXPECT_EQ(how, "it does not read what it is sent");
}

}  // namespace
}  // namespace sprat::comm
