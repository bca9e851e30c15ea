// What ranks tell of their sockets.
#include "comm/transports/sockets/contact.hpp"

#include <gtest/gtest.h>

#include <string>

namespace sprat::comm::sockets {
namespace {

Contact two_rails() {
  Contact contact{.key = {}, .streams_a_rail = 3, .rails = {}};
  contact.key.fill(std::byte{9});
  contact.rails = {*parse_address("10.0.0.7", 1234), *parse_address("fd00::7", 65'535)};
  return contact;
}

TEST(SocketContact, comes_back_as_it_was) {
  const Contact contact = two_rails();
  const auto back = decode_contact(encode(contact));
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, contact);
  EXPECT_EQ(describe(back->rails[0]), "10.0.0.7:1234");
  EXPECT_EQ(describe(back->rails[1]), "[fd00::7]:65535");
}

TEST(SocketContact, is_none_if_any_of_it_is_missing_or_too_much) {
  const Blob whole = encode(two_rails());
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_FALSE(decode_contact(Blob(whole.begin(), whole.begin() + static_cast<long>(bytes))))
        << bytes;
  }
  Blob longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_contact(longer));
  // No rail, too many streams, a port of 0.
  for (Contact wrong : {Contact{.key = {}, .streams_a_rail = 1, .rails = {}},
                        Contact{.key = {}, .streams_a_rail = 9, .rails = two_rails().rails},
                        Contact{.key = {}, .streams_a_rail = 0, .rails = two_rails().rails},
                        Contact{.key = {}, .streams_a_rail = 1, .rails = {NetAddress{}}}}) {
    EXPECT_FALSE(decode_contact(encode(wrong)));
  }
}

TEST(SocketContact, has_addresses_of_numbers) {
  for (const char* text : {"", "localhost", "10.0.0", "10.0.0.256", "fd00:::7", "10.0.0.7:80"}) {
    EXPECT_FALSE(parse_address(text, 1)) << text;
  }
  for (const char* text : {"127.0.0.1", "::1"}) {
    const auto address = parse_address(text, 4711);
    ASSERT_TRUE(address) << text;
    const KernelAddress kernel = to_kernel(*address);
    EXPECT_EQ(port_of(kernel), 4711) << text;
    EXPECT_EQ(kernel.storage.ss_family, address->v6 ? AF_INET6 : AF_INET);
  }
}

TEST(SocketContact, of_many_peers_come_back_by_peer) {
  ContactBook book;
  book.add({});
  book.add(encode(two_rails()));
  EXPECT_EQ(book.of(0), std::nullopt);
  EXPECT_EQ(book.of(1), two_rails());
  for (const int nobody : {-1, 2}) {
    EXPECT_EQ(book.of(nobody), std::nullopt) << nobody;
  }
}

}  // namespace
}  // namespace sprat::comm::sockets
