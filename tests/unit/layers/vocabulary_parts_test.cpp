// Parts of a vocabulary: what ranks that have them join has the bits of one rank that has all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "sprat/layers.hpp"
#include "tests/unit/comm/base/refused.hpp"
#include "tests/unit/layers/roundings.hpp"
#include "tests/unit/layers/tree.hpp"

namespace sprat::layers_test::vocabulary_parts {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr int pieces_of_one = 4;

const std::vector<int> vocabularies = {50'257, 257, 7, 4, 1};
const std::vector<int> degrees = {1, 2, 4};

layers::TokenRange part_of(int vocabulary, int degree, int rank) {
  const auto begin = [&](std::int64_t at) { return static_cast<int>(vocabulary * at / degree); };
  return {.first = begin(rank), .count = begin(rank + 1) - begin(rank)};
}

/// The columns of a part, as a rank has them.
std::vector<float> columns_of(const std::vector<float>& rows, int width, layers::TokenRange part) {
  std::vector<float> some;
  for (auto row = rows.begin(); row != rows.end(); row += width) {
    some.insert(some.end(), row + part.first, row + part.first + part.count);
  }
  return some;
}

struct Batch {
  int vocabulary = 0;
  std::vector<std::int32_t> targets;
  std::vector<float> logits;
};

/// Targets at the edges of every part and by chance; a row of equal logits, rows where some are
/// impossible, and one where only the target is possible.
Batch batch_of(int vocabulary) {
  Batch batch{.vocabulary = vocabulary};
  for (int rank = 0; rank < 4; ++rank) {
    const layers::TokenRange part = part_of(vocabulary, 4, rank);
    for (const int token : {part.first - 1, part.first, part.first + part.count - 1}) {
      batch.targets.push_back(std::clamp(token, 0, vocabulary - 1));
    }
  }
  batch.targets.push_back(vocabulary / 3);
  batch.logits = random(batch.targets.size() * static_cast<std::size_t>(vocabulary), 7);
  const auto row = [&](int at) { return batch.logits.begin() + std::ptrdiff_t{at} * vocabulary; };
  std::fill_n(row(0), vocabulary, 0.25f);
  for (int token = 0; token < vocabulary; ++token) {
    const bool is_third = token % 3 == 1, is_target = token == batch.targets[2];
    row(1)[token] = is_third && token != batch.targets[1] ? -infinity : row(1)[token];
    row(2)[token] = is_target ? row(2)[token] : -infinity;
  }
  return batch;
}

/// What a layer gives, as one rank sees it.
struct Given {
  std::vector<float> highest, share;
  std::vector<double> loss;
  std::vector<float> gradient;  ///< All columns.
  explicit Given(std::size_t rows) : highest(rows), share(rows), loss(rows) {}
  layers::CrossEntropyRows rows() {
    return {.highest = highest.data(), .share = share.data(), .loss = loss.data()};
  }
};

constexpr float scale = 0.37f;

Given whole(const Batch& batch, int pieces) {
  Given given(batch.targets.size());
  const layers::CrossEntropy layer{
      .vocabulary = batch.vocabulary, .targets = batch.targets, .pieces = pieces};
  given.gradient = batch.logits;
  layers::cross_entropy_forward(layer, given.gradient.data(), given.rows());
  layers::cross_entropy_backward_input(layer, given.rows(), scale, given.gradient.data());
  return given;
}

/// The steps of `degree` ranks, joined as their communicator joins.
Given by_parts(const Batch& batch, int degree) {
  const std::size_t rows = batch.targets.size();
  std::vector<layers::CrossEntropy> layer;
  std::vector<std::vector<float>> logits, highest, sums;
  for (int rank = 0; rank < degree; ++rank) {
    layer.push_back({.vocabulary = batch.vocabulary,
                     .targets = batch.targets,
                     .part = part_of(batch.vocabulary, degree, rank),
                     .pieces = pieces_of_one / degree});
    logits.push_back(columns_of(batch.logits, batch.vocabulary, *layer.back().part));
    highest.emplace_back(rows);
    layers::cross_entropy_highest(layer.back(), logits.back().data(), highest.back().data());
  }
  Given given(rows);
  given.highest = highest[0];
  for (const auto& other : highest) {
    std::ranges::transform(other, given.highest, given.highest.begin(),
                           [](float a, float b) { return std::max(a, b); });
  }
  for (int rank = 0; rank < degree; ++rank) {
    sums.emplace_back(2 * rows);
    layers::cross_entropy_sums(layer[rank], logits[rank].data(), given.highest.data(),
                               sums.back().data());
  }
  layers::cross_entropy_finish(added_by_tree(sums), given.rows());
  given.gradient.resize(batch.logits.size());
  for (int rank = 0; rank < degree; ++rank) {
    layers::cross_entropy_backward_input(layer[rank], given.rows(), scale, logits[rank].data());
    const layers::TokenRange part = *layer[rank].part;
    for (std::size_t row = 0; row < rows; ++row) {
      std::copy_n(logits[rank].begin() + static_cast<std::ptrdiff_t>(row) * part.count, part.count,
                  given.gradient.begin() + static_cast<std::ptrdiff_t>(row) * batch.vocabulary +
                      part.first);
    }
  }
  return given;
}

TEST(LayerKernels, cross_entropy_by_parts_of_the_vocabulary_has_the_bits_of_the_whole) {
  for (const int vocabulary : vocabularies) {
    const Batch batch = batch_of(vocabulary);
    const Given expected = whole(batch, pieces_of_one);
    for (const int degree : degrees) {
      SCOPED_TRACE(std::to_string(vocabulary) + " tokens over " + std::to_string(degree));
      const Given got = by_parts(batch, degree);
      EXPECT_EQ(got.highest, expected.highest);
      EXPECT_EQ(got.share, expected.share);
      EXPECT_EQ(got.loss, expected.loss);
      EXPECT_EQ(got.gradient, expected.gradient);
    }
  }
}

TEST(LayerKernels, cross_entropy_adds_up_in_pieces_that_are_joined_as_ranks_are) {
  constexpr int vocabulary = 257;
  const Batch batch = batch_of(vocabulary);
  for (const int pieces : {1, 2, 3, 4, 7}) {
    const std::size_t rows = batch.targets.size();
    const auto sums_of = [&](layers::TokenRange part, int parts) {
      std::vector<float> sums(2 * rows);
      const auto logits = columns_of(batch.logits, vocabulary, part);
      const std::vector<float> highest(rows, 2.0f);
      layers::cross_entropy_sums(
          {.vocabulary = vocabulary, .targets = batch.targets, .part = part, .pieces = parts},
          logits.data(), highest.data(), sums.data());
      return sums;
    };
    std::vector<std::vector<float>> apart;
    for (int piece = 0; piece < pieces; ++piece) {
      apart.push_back(sums_of(part_of(vocabulary, pieces, piece), 1));
    }
    EXPECT_EQ(added_by_tree(apart), sums_of({0, vocabulary}, pieces)) << pieces;
  }
}

TEST(LayerKernels, a_part_of_no_tokens_takes_part_in_the_joins) {
  const std::vector<std::int32_t> targets = {0, 2};
  const layers::CrossEntropy layer{
      .vocabulary = 3, .targets = targets, .part = layers::TokenRange{3, 0}, .pieces = 2};
  const std::vector<float> none, of_all = {1.0f, 2.0f};
  std::vector<float> highest(2), sums(4, 5.0f);
  layers::cross_entropy_highest(layer, none.data(), highest.data());
  EXPECT_EQ(highest, std::vector<float>(2, -infinity));
  layers::cross_entropy_sums(layer, none.data(), of_all.data(), sums.data());
  EXPECT_EQ(sums, std::vector<float>(4, 0.0f));
}

TEST(LayerKernels, embedding_by_parts_of_the_vocabulary_has_the_rows_of_the_whole) {
  constexpr int width = 3;
  for (const int vocabulary : vocabularies) {
    const auto& tokens = batch_of(vocabulary).targets;
    const auto table = random(static_cast<std::size_t>(vocabulary * width), 1),
               dx = random(tokens.size() * width, 2);
    std::vector<float> x(tokens.size() * width), gradient = table;
    const layers::EmbeddingShape all{.vocabulary = vocabulary, .width = width};
    layers::embedding_forward(all, tokens, table, x.data());
    layers::embedding_backward_weight(all, tokens, dx.data(), gradient);
    for (const int degree : degrees) {
      SCOPED_TRACE(std::to_string(vocabulary) + " tokens over " + std::to_string(degree));
      std::vector<std::vector<float>> rows;
      std::vector<float> of_parts;
      for (int rank = 0; rank < degree; ++rank) {
        const layers::TokenRange part = part_of(vocabulary, degree, rank);
        const layers::EmbeddingShape shape{.vocabulary = vocabulary, .width = width, .part = part};
        const auto first = table.begin() + std::ptrdiff_t{part.first} * width;
        std::vector<float> own(first, first + std::ptrdiff_t{part.count} * width);
        rows.emplace_back(x.size(), 9.0f);
        layers::embedding_forward(shape, tokens, own, rows.back().data());
        layers::embedding_backward_weight(shape, tokens, dx.data(), own);
        of_parts.insert(of_parts.end(), own.begin(), own.end());
      }
      EXPECT_EQ(added_by_tree(rows), x);
      EXPECT_EQ(of_parts, gradient);
    }
  }
}

TEST(LayerKernels, parts_that_are_none_are_refused) {
  const std::vector<std::int32_t> tokens = {1};
  std::vector<float> values(8), kept(2);
  double loss = 0;
  const layers::CrossEntropyRows rows{
      .highest = kept.data(), .share = kept.data() + 1, .loss = &loss};
  for (const layers::TokenRange part : {layers::TokenRange{-1, 2}, {3, 2}, {0, 5}, {2, -1}}) {
    const std::string expected = "the " + std::to_string(part.count) + " tokens from " +
                                 std::to_string(part.first) +
                                 " on are no part of a vocabulary of 4";
    EXPECT_THAT(message_of([&] {
                  layers::embedding_forward({.vocabulary = 4, .width = 2, .part = part}, tokens,
                                            values, values.data());
                }),
                testing::HasSubstr(expected));
    EXPECT_THAT(message_of([&] {
                  layers::cross_entropy_highest({.vocabulary = 4, .targets = tokens, .part = part},
                                                values.data(), kept.data());
                }),
                testing::HasSubstr(expected));
  }
  EXPECT_THAT(message_of([&] {
                layers::embedding_forward(
                    {.vocabulary = 8, .width = 2, .part = layers::TokenRange{1, 5}}, tokens, values,
                    values.data());
              }),
              testing::HasSubstr("5 tokens of width 2 are not in a table of 8 elements"));
  const layers::CrossEntropy some{
      .vocabulary = 4, .targets = tokens, .part = layers::TokenRange{1, 2}};
  EXPECT_THAT(message_of([&] { layers::cross_entropy_forward(some, values.data(), rows); }),
              testing::HasSubstr("this layer has 2 tokens of 4; call cross_entropy_highest()"));
  EXPECT_THAT(message_of([&] {
                layers::cross_entropy_highest({.vocabulary = 4, .targets = tokens, .pieces = 0},
                                              values.data(), kept.data());
              }),
              testing::HasSubstr("in 0 pieces"));
}

}  // namespace
}  // namespace sprat::layers_test::vocabulary_parts
