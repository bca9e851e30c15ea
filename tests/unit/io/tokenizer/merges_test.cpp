// Merges of one word, against a search of all neighbours for each merge.
#include "io/tokenizer/merges.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace sprat::io::tokenizer_merges_test {
namespace {

/// As the paper tells it: the pair of the earliest merge, the left-most, until there is none.
std::vector<std::int32_t> merged_by_search(const TokenizerModel& model, const std::string& word) {
  std::vector<std::int32_t> tokens;
  for (const char byte : word) {
    tokens.push_back(model.byte_tokens[static_cast<unsigned char>(byte)]);
  }
  for (;;) {
    bool changed = false;
    for (const TokenMerge& merge : model.merges) {
      for (std::size_t at = 0; !changed && at + 1 < tokens.size(); ++at) {
        if (tokens[at] == merge.left && tokens[at + 1] == merge.right) {
          tokens[at] = merge.merged;
          tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(at) + 1);
          changed = true;
        }
      }
      if (changed) {
        break;
      }
    }
    if (!changed) {
      return tokens;
    }
  }
}

/// Merges of random earlier tokens of the letters a to d, each making a token of its own.
TokenizerModel random_merges(std::mt19937& random, int count) {
  TokenizerModel model;
  for (int byte = 0; byte < 256; ++byte) {
    model.byte_tokens.push_back(byte);
  }
  std::vector<std::int32_t> known = {'a', 'b', 'c', 'd'};
  for (int i = 0; i < count; ++i) {
    const TokenMerge merge{known[random() % known.size()], known[random() % known.size()], 256 + i};
    const bool again = std::ranges::any_of(model.merges, [&](const TokenMerge& other) {
      return other.left == merge.left && other.right == merge.right;
    });
    if (!again) {
      model.merges.push_back(merge);
      known.push_back(merge.merged);
    }
  }
  return model;
}

TEST(Merges, give_what_a_search_for_each_merge_gives) {
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    const TokenizerModel model = random_merges(random, 1 + int(random() % 12));
    const MergeTable table(model);
    for (int length = 0; length <= 24; ++length) {
      std::string word;
      for (int i = 0; i < length; ++i) {
        word += static_cast<char>('a' + random() % (1 + round % 4));
      }
      std::vector<std::int32_t> tokens;
      table.append(word, tokens);
      ASSERT_EQ(tokens, merged_by_search(model, word)) << word << ", round " << round;
    }
  }
}

TEST(Merges, of_equal_letters_the_left_most_go_first) {
  TokenizerModel model;
  for (int byte = 0; byte < 256; ++byte) {
    model.byte_tokens.push_back(byte);
  }
  model.merges = {{'a', 'a', 256}, {256, 256, 257}};
  std::vector<std::int32_t> tokens;
  MergeTable(model).append("aaaaaaa", tokens);
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{257, 256, 'a'}));
}

TEST(Merges, a_word_of_many_bytes_takes_no_square_of_that) {
  TokenizerModel model;
  for (int byte = 0; byte < 256; ++byte) {
    model.byte_tokens.push_back(byte);
  }
  model.merges = {{'a', 'a', 256}, {256, 256, 257}, {257, 257, 258}};
  std::vector<std::int32_t> tokens;
  MergeTable(model).append(std::string(1 << 18, 'a'), tokens);
  EXPECT_EQ(tokens, std::vector<std::int32_t>(1 << 15, 258));
}

}  // namespace
}  // namespace sprat::io::tokenizer_merges_test
