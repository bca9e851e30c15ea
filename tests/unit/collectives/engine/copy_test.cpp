// Copies: every byte, and none beside them.
#include "collectives/engine/copy.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace sprat::collectives {
namespace {

TEST(Copy, copies_every_byte_and_none_beside_them) {
  for (const std::size_t bytes : {0, 1, 63, 64, 4096, 16383, 16384, 16385, 20000, 262144, 262207}) {
    for (const std::size_t offset : {0, 1, 64, 80}) {
      for (const bool past_cache : {false, true}) {
        std::vector<std::byte> from(bytes + 200), to(bytes + 200, std::byte{0xee});
        for (std::size_t i = 0; i < from.size(); ++i) {
          from[i] = static_cast<std::byte>(i * 131 >> 3);
        }
        copy(to.data() + 64, from.data() + offset, bytes, past_cache);
        for (std::size_t i = 0; i < to.size(); ++i) {
          const bool inside = i >= 64 && i < 64 + bytes;
          ASSERT_EQ(to[i], inside ? from[i - 64 + offset] : std::byte{0xee})
              << "byte " << i << " of " << bytes << " from offset " << offset;
        }
      }
    }
  }
}

// Of 4 and of 2 ranks on one host, and of 4 on two hosts.
TEST(Broadcasts, go_past_the_caches_by_what_ranks_that_share_them_write) {
  const auto goes = [](std::vector<int> hosts, std::size_t mib, bool oversubscribed) {
    Problem problem;
    problem.collective = Collective::broadcast;
    problem.grouping = std::make_shared<const Grouping>(hosts);
    problem.count = (mib << 20) / size_of(problem.input);
    return goes_past_cache(problem, oversubscribed);
  };
  EXPECT_FALSE(goes({0, 0, 0, 0}, 1, true));
  EXPECT_TRUE(goes({0, 0, 0, 0}, 4, true));
  EXPECT_FALSE(goes({0, 0}, 4, true));
  EXPECT_FALSE(goes({0, 0, 1, 1}, 4, true));
  EXPECT_TRUE(goes({0, 0, 1, 1}, 8, true));
  EXPECT_TRUE(goes({0, 0, 0, 0}, 1, false));
}

}  // namespace
}  // namespace sprat::collectives
