// Whose connection it is, by the kernel's word.
#include "comm/coordinator/objection.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <sstream>

#include "comm/coordinator/control_socket.hpp"

namespace sprat::comm {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

Ends ends(const char* near, int near_port, const char* far, int far_port) {
  const auto end = [](const char* address, int port) {
    return tcp::endpoint(asio::ip::make_address(address), static_cast<std::uint16_t>(port));
  };
  return {end(near, near_port), end(far, far_port)};
}

constexpr const char* heading =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout\n";

TEST(Owner, is_found_by_both_ends_of_an_established_connection) {
  const std::string table =
      std::string(heading) +
      "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 "
      "1\n"
      "   1: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 "
      "2\n"
      "   2: 0100007F:C351 0100007F:1F90 04 00000000:00000000 00:00000000 00000000  1002        0 "
      "3\n"
      "nonsense\n"
      "   3: 000000000000000000000000010000 0100007F:1F90 01 0:0 00:0 0  1003 0 4\n";
  struct Case {
    Ends ends;
    std::optional<uid_t> owner;
  };
  const Case cases[] = {
      {ends("127.0.0.1", 8080, "127.0.0.1", 50000), 1001},
      {ends("::ffff:127.0.0.1", 8080, "::ffff:127.0.0.1", 50000), 1001},
      {ends("127.0.0.1", 8080, "127.0.0.1", 50001), std::nullopt},  // closed by its process
      {ends("127.0.0.1", 8080, "127.0.0.1", 50002), std::nullopt},
      {ends("127.0.0.2", 8080, "127.0.0.1", 50000), std::nullopt},
  };
  for (std::size_t at = 0; at < std::size(cases); ++at) {
    std::istringstream in(table);
    EXPECT_EQ(find_owner(in, cases[at].ends), cases[at].owner) << "case " << at;
  }
}

TEST(Owner, is_found_by_ipv6_addresses_too) {
  std::istringstream in(
      std::string(heading) +
      "   0: 00000000000000000000000001000000:C350 00000000000000000000000001000000:1F90 01 "
      "00000000:00000000 00:00000000 00000000  1001        0 2\n");
  EXPECT_EQ(find_owner(in, ends("::1", 8080, "::1", 50000)), 1001u);
}

TEST(Trust, believes_this_users_connections_at_both_ends) {
  asio::io_context io;
  Listening listening = *listen_on(io, 0);
  for (const char* address : {"127.0.0.1", "::1"}) {
    const tcp::endpoint coordinator(asio::ip::make_address(address),
                                    static_cast<std::uint16_t>(listening.port));
    StreamSocket rank = open_socket(io, coordinator.protocol());
    rank.native_non_blocking(false);
    rank.non_blocking(false);
    rank.connect(coordinator);
    listening.acceptor.wait(asio::socket_base::wait_read);
    const Accepted accepted = accept_one(io, listening.acceptor);
    ASSERT_TRUE(accepted.socket);
    for (const Trust trust : {Trust::proof, Trust::this_user, Trust::launcher}) {
      EXPECT_EQ(object_to(trust, *accepted.socket).text, "") << address;
      EXPECT_EQ(object_to(trust, rank).text, "") << address;
    }
  }
}

TEST(Trust, believes_no_connection_that_its_process_has_closed) {
  asio::io_context io;
  Listening listening = *listen_on(io, 0);
  const tcp::endpoint coordinator(asio::ip::address_v4::loopback(),
                                  static_cast<std::uint16_t>(listening.port));
  {
    StreamSocket rank = open_socket(io, coordinator.protocol());
    rank.native_non_blocking(false);
    rank.non_blocking(false);
    rank.connect(coordinator);
  }
  listening.acceptor.wait(asio::socket_base::wait_read);
  const Accepted accepted = accept_one(io, listening.acceptor);
  ASSERT_TRUE(accepted.socket);
  EXPECT_NE(object_to(Trust::this_user, *accepted.socket).text, "");
  EXPECT_NE(object_to(Trust::launcher, *accepted.socket).text, "");
}

}  // namespace
}  // namespace sprat::comm
