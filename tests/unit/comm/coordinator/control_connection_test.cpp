// How a connection of the control channel ends.
#include "comm/coordinator/control_connection.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <memory>
#include <stdexcept>
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

// Nothing else reads on, so whoever waits for this peer would hear neither of it nor of its end.
TEST(ControlConnection, ends_when_what_came_cannot_be_taken) {
  boost::asio::io_context io;
  auto [near, far] = socket_pair(io);
  std::string how;
  const auto connection = ControlConnection::start(
      std::move(near), max_frame_bytes,
      {.received = [](Frame) { throw std::runtime_error("no room for it"); },
       .ended = [&how](std::string_view said) { how = said; }});
  boost::asio::write(far, boost::asio::buffer(encode(Beat{})));
  while (how.empty() && io.run_one_for(20s) > 0) {
  }
  EXPECT_THAT(how, testing::HasSubstr("no room for it"));
  char none = 0;
  boost::system::error_code ended;
  boost::asio::read(far, boost::asio::buffer(&none, 1), ended);
  EXPECT_EQ(ended, boost::asio::error::eof) << "the other end sees it as well";
}

// Who was let in meanwhile is lost as whom it was let in.
TEST(ControlConnection, ends_for_whom_it_was_handed_to_though_the_handing_failed) {
  boost::asio::io_context io;
  auto [near, far] = socket_pair(io);
  std::string before, after;
  std::shared_ptr<ControlConnection> connection;
  connection = ControlConnection::start(
      std::move(near), max_frame_bytes,
      {.received =
           [&](Frame) {
             connection->hand_over(max_frame_bytes,
                                   {.received = [](Frame) {},
                                    .ended = [&after](std::string_view said) { after = said; }});
             throw std::runtime_error("no room for it");
           },
       .ended = [&before](std::string_view said) { before = said; }});
  boost::asio::write(far, boost::asio::buffer(encode(Beat{})));
  while (after.empty() && io.run_one_for(20s) > 0) {
  }
  EXPECT_EQ(before, "");
  EXPECT_THAT(after, testing::HasSubstr("no room for it"));
}

}  // namespace
}  // namespace sprat::comm
