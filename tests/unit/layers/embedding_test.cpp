// Tables of tokens and positions: rows are looked up, their gradients added, bad indices refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "sprat/error.hpp"
#include "sprat/layers.hpp"
#include "tests/unit/comm/base/refused.hpp"
#include "tests/unit/layers/roundings.hpp"

namespace sprat::layers_test::embedding {
namespace {

TEST(LayerKernels, embedding_takes_tokens_wider_than_a_byte) {
  constexpr int vocabulary = 50'257, width = 3;
  const auto table = random(std::size_t{vocabulary} * width, 1);
  const std::vector<std::int32_t> tokens = {50'256, 0, 300, 50'256};
  const layers::EmbeddingShape shape{.vocabulary = vocabulary, .width = width};
  std::vector<float> x(tokens.size() * width);
  layers::embedding_forward(shape, tokens, table, x.data());
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    for (int i = 0; i < width; ++i) {
      EXPECT_EQ(x[row * width + i], table[tokens[row] * width + i]);
    }
  }
}

TEST(LayerKernels, embedding_backward_weight_adds_rows_first_to_last) {
  constexpr int vocabulary = 300, width = 5;
  const std::vector<std::int32_t> tokens = {299, 7, 299, 0, 299, 7};
  const auto start = random(vocabulary * width, 1), dx = random(tokens.size() * width, 2);
  std::vector<float> gradient = start, expected = start;
  layers::embedding_backward_weight({.vocabulary = vocabulary, .width = width}, tokens, dx.data(),
                                    gradient);
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    for (int i = 0; i < width; ++i) {
      expected[tokens[row] * width + i] += dx[row * width + i];
    }
  }
  EXPECT_EQ(gradient, expected);
}

TEST(LayerKernels, positions_begin_where_they_are_told_and_again_for_each_sequence) {
  const auto table = random(10 * 2, 1), tokens = random(4 * 2, 2), dx = random(4 * 2, 3);
  const layers::PositionShape shape{.rows = 4, .length = 2, .width = 2, .first = 7};
  std::vector<float> x = tokens, gradient = table;
  layers::position_forward(shape, table, x.data());
  layers::position_backward_weight(shape, dx.data(), gradient);
  std::vector<float> expected_x = tokens, expected_gradient = table;
  for (int row = 0; row < 4; ++row) {
    for (int i = 0; i < 2; ++i) {
      const int place = (7 + row % 2) * 2 + i;
      expected_x[row * 2 + i] += table[place];
      expected_gradient[place] += dx[row * 2 + i];
    }
  }
  EXPECT_EQ(x, expected_x);
  EXPECT_EQ(gradient, expected_gradient);
}

TEST(LayerKernels, positions_of_rows_from_within_a_sequence_on_are_those_of_all_rows) {
  constexpr int rows = 23, length = 5, width = 3;
  const auto table = random(8 * width, 1), dx = random(rows * width, 2);
  const layers::PositionShape all{.rows = rows, .length = length, .width = width, .first = 2};
  std::vector<float> x = dx, gradient = table;
  layers::position_forward(all, table, x.data());
  layers::position_backward_weight(all, dx.data(), gradient);
  std::vector<float> by_calls = dx, gradient_by_calls = table;
  for (int first = 0; first < rows;) {
    layers::PositionShape some = all;
    some.first_row = first;
    some.rows = std::min(1 + first % 7, rows - first);
    layers::position_forward(some, table, by_calls.data() + first * width);
    layers::position_backward_weight(some, dx.data() + first * width, gradient_by_calls);
    first += some.rows;
  }
  EXPECT_EQ(by_calls, x);
  EXPECT_EQ(gradient_by_calls, gradient);
}

TEST(LayerKernels, positions_of_ranks_with_two_runs_each_are_those_of_all_rows) {
  constexpr int ranks = 3, chunk = 2, sequences = 2, width = 3, length = 2 * ranks * chunk;
  const auto table = random(length * width, 1), dx = random(sequences * length * width, 2);
  const layers::PositionShape all{.rows = sequences * length, .length = length, .width = width};
  std::vector<float> x = dx, gradient(table.size()), gradient_by_ranks(table.size());
  layers::position_forward(all, table, x.data());
  layers::position_backward_weight(all, dx.data(), gradient);
  for (int rank = 0; rank < ranks; ++rank) {
    const int second = (2 * ranks - 1 - rank) * chunk;
    // A position has one rank, and there a row for each sequence: any pieces add up the same.
    const layers::PositionShape own{.rows = sequences * 2 * chunk,
                                    .length = 2 * chunk,
                                    .width = width,
                                    .first = rank * chunk,
                                    .left_out = second - (rank + 1) * chunk,
                                    .row_pieces = rank == 0 ? 1 : 4};
    std::vector<float> rows, expected;
    for (int row = 0; row < own.rows; ++row) {
      const int in_chunk = row % chunk, of = row / (2 * chunk) * length;
      const int position = (row / chunk % 2 == 0 ? own.first : second) + in_chunk;
      const auto from = std::ptrdiff_t{of + position} * width;
      rows.insert(rows.end(), dx.begin() + from, dx.begin() + from + width);
      expected.insert(expected.end(), x.begin() + from, x.begin() + from + width);
    }
    std::vector<float> workspace(layers::position_backward_workspace(own));
    EXPECT_LE(workspace.size(), 3u * 2 * chunk * width);
    layers::position_backward_weight(own, rows.data(), gradient_by_ranks, workspace);
    layers::position_forward(own, table, rows.data());
    EXPECT_EQ(rows, expected) << "rank " << rank;
  }
  EXPECT_EQ(gradient_by_ranks, gradient);
}

TEST(LayerKernels, a_token_that_is_not_in_the_table_is_refused_before_anything_is_written) {
  const std::vector<float> before(8, 3.0f), table(8, 1.0f);
  const layers::EmbeddingShape shape{.vocabulary = 4, .width = 2};
  for (const std::int32_t token : {-1, 4, 1 << 30}) {
    const std::vector<std::int32_t> tokens = {0, token};
    const auto names_it = testing::HasSubstr("token " + std::to_string(token) + " of row 1");
    std::vector<float> x = before;
    EXPECT_THAT(message_of([&] { layers::embedding_forward(shape, tokens, table, x.data()); }),
                names_it);
    EXPECT_THAT(
        message_of([&] { layers::embedding_backward_weight(shape, tokens, table.data(), x); }),
        names_it);
    EXPECT_EQ(x, before);
  }
}

TEST(LayerKernels, positions_that_are_not_in_the_table_are_refused_before_anything_is_written) {
  const std::vector<float> before(8, 3.0f), table(8, 1.0f);  // 4 positions
  std::vector<float> x = before;
  for (const layers::PositionShape shape :
       {layers::PositionShape{.rows = 2, .length = 2, .width = 2, .first = 3},
        layers::PositionShape{.rows = 2, .length = 2, .width = 2, .first = -1},
        layers::PositionShape{.rows = 4, .length = 5, .width = 3},
        layers::PositionShape{.rows = 2, .length = 2, .width = 2, .left_out = 3},
        layers::PositionShape{.rows = 2, .length = 5, .width = 2, .first_row = 13},
        layers::PositionShape{.rows = 2, .length = 2, .width = 2, .first_row = -1},
        layers::PositionShape{.rows = 2, .length = 0, .width = 2}}) {
    EXPECT_THROW(layers::position_forward(shape, table, x.data()), Error) << shape.first;
    EXPECT_THROW(layers::position_backward_weight(shape, table.data(), x), Error) << shape.first;
  }
  EXPECT_EQ(x, before);
}

TEST(LayerKernels, tables_cost_what_they_move) {
  const layers::EmbeddingShape shape{.vocabulary = 1000, .width = 5};
  EXPECT_EQ(layers::embedding_forward_cost(shape, 3), (layers::Cost{0, 3 * 4 + 2 * 4 * 15}));
  EXPECT_EQ(layers::embedding_backward_weight_cost(shape, 3),
            (layers::Cost{15, 3 * 4 + 3 * 4 * 15}));
  EXPECT_EQ(layers::position_cost({.rows = 3, .length = 3, .width = 5}),
            (layers::Cost{15, 3 * 4 * 15}));
}

}  // namespace
}  // namespace sprat::layers_test::embedding
