// The hash of the standard, and when it is there.
#include "comm/encryption/keyed_hash.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace sprat::comm {
namespace {

KeyedHash hash_of(std::string_view key, std::string_view message) {
  return keyed_hash(key, std::as_bytes(std::span(message)));
}

std::string in_hexadecimal(const KeyedHash& hash) {
  std::string text;
  for (const std::byte byte : hash) {
    constexpr std::string_view digits = "0123456789abcdef";
    text += digits[std::to_integer<unsigned>(byte) >> 4];
    text += digits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

// RFC 4231, test case 2.
TEST(KeyedHash, is_the_one_of_the_standard) {
  EXPECT_EQ(in_hexadecimal(hash_of("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(KeyedHash, is_the_same_or_not_by_every_byte) {
  const KeyedHash hash = hash_of("key", "message");
  EXPECT_TRUE(same_in_constant_time(hash, hash_of("key", "message")));
  for (std::size_t at = 0; at < hash.size(); ++at) {
    KeyedHash other = hash;
    other[at] ^= std::byte{1};
    EXPECT_FALSE(same_in_constant_time(hash, other)) << at;
  }
}

// What is registered before the first use runs after whatever libcrypto registers in it. Threads
// of communicators that nobody ended are still there, too.
TEST(KeyedHashDeathTest, is_made_while_the_process_exits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the child begins anew
  EXPECT_EXIT(
      {
        std::atexit([] {
          try {
            _exit(hash_of("key", "message") == KeyedHash{} ? 1 : 0);
          } catch (const std::exception&) {
            _exit(2);
          }
        });
        hash_of("key", "message");
        std::exit(3);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace sprat::comm
