// How a message is cut over rails, and on which it begins.
#include "comm/transports/libfabric/rail_cut.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace sprat::comm::libfabric {
namespace {

constexpr std::size_t least = least_cut, MiB = 1 << 20;

std::vector<Piece> pieces_of(std::size_t bytes, std::size_t rails) {
  std::vector<Piece> pieces;
  for (std::size_t index = 0; index < rails; ++index) {
    pieces.push_back(piece_of(bytes, rails, index));
  }
  return pieces;
}

TEST(RailCut, makes_these_pieces) {
  struct Case {
    std::size_t bytes, rails;
    std::vector<Piece> pieces;
  };
  const std::vector<Case> cases = {
      {least, 2, {{0, least}, {least, 0}}},
      {least + 1, 2, {{0, least}, {least, 1}}},
      {2 * least - 1, 2, {{0, least}, {least, least - 1}}},
      {2 * least, 2, {{0, least}, {least, least}}},
      {2 * least + 1, 2, {{0, least + 1}, {least + 1, least}}},
      {16 * MiB, 2, {{0, 8 * MiB}, {8 * MiB, 8 * MiB}}},
      {least + 5, 4, {{0, least}, {least, 2}, {least + 2, 2}, {least + 4, 1}}},
      {4 * MiB + 2, 4, {{0, MiB + 1}, {MiB + 1, MiB + 1}, {2 * MiB + 2, MiB}, {3 * MiB + 2, MiB}}},
  };
  for (const Case& one : cases) {
    EXPECT_EQ(pieces_of(one.bytes, one.rails), one.pieces) << one.bytes << " over " << one.rails;
  }
}

TEST(RailCut, covers_the_message_and_never_makes_a_longer_piece_of_a_shorter_one) {
  for (const std::size_t rails : {2u, 3u, 4u, 7u}) {
    std::vector<Piece> shorter;
    for (std::size_t bytes = least; bytes < rails * least + 100;
         bytes += bytes % 1000 < 20 ? 1 : 97) {
      const std::vector<Piece> pieces = pieces_of(bytes, rails);
      std::size_t end = 0;
      for (std::size_t index = 0; index < rails; ++index) {
        ASSERT_EQ(pieces[index].offset, end) << bytes << " over " << rails;
        ASSERT_TRUE(shorter.empty() || pieces[index].bytes >= shorter[index].bytes)
            << bytes << " over " << rails;
        end += pieces[index].bytes;
      }
      ASSERT_EQ(end, bytes) << rails;
      ASSERT_GE(pieces.front().bytes, least) << bytes << " over " << rails;
      shorter = pieces;
    }
  }
}

TEST(RailCut, lets_consecutive_tags_take_turns) {
  for (const std::size_t rails : {1u, 2u, 3u, 4u}) {
    for (const std::uint64_t tag : {std::uint64_t{0}, (std::uint64_t{1} << 63) - (1 << 14)}) {
      for (std::uint64_t chunk = 1; chunk < 100; ++chunk) {
        EXPECT_EQ(home_rail(3, 5, tag + chunk, rails),
                  (home_rail(3, 5, tag + chunk - 1, rails) + 1) % rails);
      }
    }
  }
}

/// Of `tags` or pairs that differ in one number, each rail begins some share.
void expect_even(std::vector<std::size_t> homes, std::size_t rails) {
  for (std::size_t rail = 0; rail < rails; ++rail) {
    const auto here = static_cast<double>(std::ranges::count(homes, rail));
    const double even = static_cast<double>(homes.size()) / static_cast<double>(rails);
    EXPECT_NEAR(here, even, even / 4) << rail << " of " << rails;
  }
}

TEST(RailCut, spreads_pairs_and_tags_over_the_rails) {
  for (const std::size_t rails : {2u, 3u, 4u}) {
    std::vector<std::size_t> by_sender, by_receiver, by_tag, by_communicator;
    for (int number = 0; number < 1000; ++number) {
      const auto wide = static_cast<std::uint64_t>(number);
      by_sender.push_back(home_rail(number, 7, 0, rails));
      by_receiver.push_back(home_rail(7, number, 0, rails));
      by_tag.push_back(home_rail(0, 1, std::uint64_t{1} << 62 | wide << 15, rails));
      by_communicator.push_back(home_rail(0, 1, wide << 47, rails));
    }
    for (const auto& homes : {by_sender, by_receiver, by_tag, by_communicator}) {
      expect_even(homes, rails);
    }
  }
}

}  // namespace
}  // namespace sprat::comm::libfabric
