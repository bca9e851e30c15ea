// Windows of a text: of an epoch no two overlap, and they stay inside.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "sprat/error.hpp"
#include "sprat/io.hpp"

namespace sprat {
namespace {

TEST(SampleOrder, windows_of_an_epoch_do_not_overlap_and_stay_inside) {
  for (const std::uint64_t tokens : {32u, 33u, 100u, 1000u, 1023u}) {
    const std::uint64_t length = 16;
    const SampleOrder order(9, tokens, length);
    for (std::uint64_t epoch = 0; epoch < 5; ++epoch) {
      std::vector<std::uint64_t> begins;
      for (std::uint64_t index = 0; index < order.per_epoch(); ++index) {
        begins.push_back(order.begin(epoch * order.per_epoch() + index));
      }
      std::sort(begins.begin(), begins.end());
      for (std::size_t i = 1; i < begins.size(); ++i) {
        ASSERT_EQ(begins[i], begins[i - 1] + length) << "tokens " << tokens;
      }
      ASSERT_LT(begins.front(), length);
      ASSERT_LE(begins.back() + length, tokens);
      ASSERT_LE(tokens - (begins.back() + length), 2 * length) << "covers all but the shift";
    }
  }
}

TEST(SampleOrder, a_text_too_short_is_refused_with_both_numbers) {
  try {
    SampleOrder(1, 31, 16);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("31"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("32"), std::string::npos) << error.what();
  }
}

// Runs that stopped go on in the order that they began in, whatever version of Sprat goes on.
TEST(SampleOrder, keeps_its_bits) {
  const SampleOrder order(1234, 1'000'003, 128);
  EXPECT_EQ(order.per_epoch(), 7811u);
  EXPECT_EQ(Permutation(7, 3, 1000)(5), 184u);
  std::vector<std::uint64_t> begins;
  for (const std::uint64_t sample : {0u, 1u, 7810u, 7811u, 100'000u}) {
    begins.push_back(order.begin(sample));
  }
  EXPECT_EQ(begins, (std::vector<std::uint64_t>{978769, 180689, 307281, 518837, 954702}));
}

}  // namespace
}  // namespace sprat
