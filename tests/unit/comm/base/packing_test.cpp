// Packing: what comes out is what went in, and garbage does no harm.
#include "comm/base/packing.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace sprat::comm {
namespace {

Blob blob_of(std::string_view text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

std::string repeated(std::string_view piece, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) {
    all += piece;
  }
  return all;
}

TEST(Packing, comes_back_as_it_went) {
  std::mt19937 random(7);
  std::string noise, two_letters;
  for (int i = 0; i < 70'000; ++i) {
    noise += static_cast<char>(random());
    two_letters += random() % 2 == 0 ? 'a' : 'b';
  }
  for (const std::string& text :
       {std::string(), std::string("a"), std::string("abcd"), std::string("aaaaa"),
        std::string(1'000, '\0'), repeated("host7 pid ", 900), noise, two_letters, noise + noise}) {
    const Blob packed = pack(blob_of(text));
    EXPECT_EQ(unpack(packed, text.size()), blob_of(text)) << text.size();
    EXPECT_LE(packed.size(), text.size() + text.size() / 1'000 + 8);
    if (!text.empty()) {
      EXPECT_FALSE(unpack(packed, text.size() - 1)) << text.size();
    }
  }
}

TEST(Packing, says_what_is_said_again_in_few_bytes) {
  std::mt19937 random(7);
  std::string greetings;
  constexpr int ranks = 1'000;
  for (int rank = 0; rank < ranks; ++rank) {
    greetings += "label of the host, 36 letters of a boot id and its namespaces, name, doors ";
    greetings += static_cast<char>(random());
    greetings += static_cast<char>(random());
    greetings += " cores 0 1 2 3 4 5 6 7";
  }
  // Two bytes are new in each, and runs around them take three.
  EXPECT_LT(pack(blob_of(greetings)).size(), 8 * ranks);
}

TEST(Packing, refuses_garbage) {
  const auto refused = [](std::initializer_list<int> bytes) {
    Blob packed;
    for (const int byte : bytes) {
      packed.push_back(static_cast<std::byte>(byte));
    }
    return !unpack(packed, 1 << 20);
  };
  EXPECT_TRUE(refused({}));
  EXPECT_TRUE(refused({2, 'a'}));              // fewer literals than it says
  EXPECT_TRUE(refused({1, 'a', 5, 2, 0, 0}));  // from before the beginning
  EXPECT_TRUE(refused({1, 'a', 5, 0, 0, 0}));  // as far as the run before, which there is not
  EXPECT_TRUE(refused({1, 'a', 0, 0}));        // more bytes than it has
  EXPECT_TRUE(refused({0x80, 0x80, 0x80, 0x80, 0x80, 0}));          // a number without end
  EXPECT_TRUE(refused({1, 'a', 0xff, 0xff, 0xff, 0x7f, 1, 0, 0}));  // longer than may be
  std::mt19937 random(1);
  for (int round = 0; round < 20'000; ++round) {
    Blob bytes(random() % 32);
    for (std::byte& byte : bytes) {
      byte = static_cast<std::byte>(random() % 16);
    }
    if (const auto raw = unpack(bytes, 1 << 12)) {
      EXPECT_LE(raw->size(), std::size_t{1} << 12);
    }
  }
}

}  // namespace
}  // namespace sprat::comm
