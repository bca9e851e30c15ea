// Gradients that are sums over rows: ranks that have parts of the rows have subtrees of one sum.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sprat/layers.hpp"
#include "tests/unit/comm/base/refused.hpp"
#include "tests/unit/layers/roundings.hpp"
#include "tests/unit/layers/tree.hpp"

namespace sprat::layers_test::row_pieces {
namespace {

constexpr int width = 19, length = 5, most_rows = 40;

/// Values of all rows; a call is given some of them.
struct Rows {
  const std::vector<float> x = random(most_rows * width, 1), dy = random(most_rows * width, 2),
                           mean = random(most_rows, 3), reciprocal = random(most_rows, 4);
};

struct Call {
  int first = 0, count = 0, pieces = 1;
};

/// A layer whose gradient of `elements` is a sum over rows.
struct RowLayer {
  const char* name;
  int elements;
  std::function<std::size_t(const Call&)> workspace;
  std::function<void(const Rows&, const Call&, std::span<float> gradient, std::span<float> work)>
      add;
};

layers::PositionShape positions(const Call& call) {
  return {.rows = call.count,
          .length = length,
          .width = width,
          .first = 1,
          .first_row = call.first,
          .row_pieces = call.pieces};
}

layers::LayerNormShape norm(const Call& call) {
  return {.rows = call.count, .width = width, .row_pieces = call.pieces};
}

layers::BiasShape bias(const Call& call) {
  return {.rows = call.count, .width = width, .row_pieces = call.pieces};
}

std::vector<RowLayer> row_layers() {
  const auto at = [](const std::vector<float>& rows, const Call& call) {
    return rows.data() + std::ptrdiff_t{call.first} * width;
  };
  return {
      {"layer norm", 2 * width,
       [](const Call& call) { return layers::layer_norm_backward_workspace(norm(call)); },
       [at](const Rows& rows, const Call& call, std::span<float> gradient, std::span<float> work) {
         layers::layer_norm_backward_weight(norm(call),
                                            {.x = at(rows.x, call),
                                             .mean = rows.mean.data() + call.first,
                                             .reciprocal = rows.reciprocal.data() + call.first,
                                             .dy = at(rows.dy, call)},
                                            gradient.first(width), gradient.last(width), work);
       }},
      {"bias", width, [](const Call& call) { return layers::bias_backward_workspace(bias(call)); },
       [at](const Rows& rows, const Call& call, std::span<float> gradient, std::span<float> work) {
         layers::bias_backward_weight(bias(call), at(rows.dy, call), gradient, work);
       }},
      {"positions", (1 + length) * width,
       [](const Call& call) { return layers::position_backward_workspace(positions(call)); },
       [at](const Rows& rows, const Call& call, std::span<float> gradient, std::span<float> work) {
         layers::position_backward_weight(positions(call), at(rows.dy, call), gradient, work);
       }}};
}

/// What a call adds to zeros, with a workspace of no more than it takes and of any value.
std::vector<float> sum_of(const RowLayer& layer, const Call& call,
                          std::vector<float> gradient = {}) {
  static const Rows rows;
  gradient.resize(static_cast<std::size_t>(layer.elements));
  std::vector<float> work(layer.workspace(call), 3.0f);
  layer.add(rows, call, gradient, work);
  return gradient;
}

int cut(int rows, int parts, int part) { return rows * part / parts; }

TEST(LayerKernels, gradients_over_rows_of_ranks_add_up_to_the_bits_of_one_rank) {
  for (const RowLayer& layer : row_layers()) {
    for (const int rows : {0, 1, 2, 3, 5, 8, 13, most_rows}) {
      const auto whole = sum_of(layer, {.first = 0, .count = rows, .pieces = 4});
      for (const int ranks : {2, 4}) {
        std::vector<std::vector<float>> sums;
        for (int rank = 0; rank < ranks; ++rank) {
          const int first = cut(rows, ranks, rank), last = cut(rows, ranks, rank + 1);
          sums.push_back(
              sum_of(layer, {.first = first, .count = last - first, .pieces = 4 / ranks}));
        }
        EXPECT_EQ(added_by_tree(sums), whole) << layer.name << ", " << rows << " over " << ranks;
      }
    }
  }
}

TEST(LayerKernels, gradients_over_rows_are_trees_of_pieces_added_row_by_row) {
  for (const RowLayer& layer : row_layers()) {
    const auto before = random(static_cast<std::size_t>(layer.elements), 9);
    for (const int pieces : {2, 3, 4, 7}) {
      std::vector<std::vector<float>> sums;
      for (int piece = 0; piece < pieces; ++piece) {
        const int first = cut(most_rows, pieces, piece), last = cut(most_rows, pieces, piece + 1);
        sums.push_back(sum_of(layer, {.first = first, .count = last - first}));
      }
      std::vector<float> expected = before;
      const std::vector<float> sum = added_by_tree(sums);
      for (std::size_t i = 0; i < sum.size(); ++i) {
        expected[i] += sum[i];
      }
      EXPECT_EQ(sum_of(layer, {.first = 0, .count = most_rows, .pieces = pieces}, before), expected)
          << layer.name << ", " << pieces;
    }
  }
}

TEST(LayerKernels, gradients_over_rows_in_one_piece_take_no_workspace) {
  for (const RowLayer& layer : row_layers()) {
    EXPECT_EQ(layer.workspace({.first = 0, .count = most_rows}), 0u) << layer.name;
  }
}

TEST(LayerKernels, gradients_over_rows_refuse_a_small_workspace_and_no_pieces) {
  const Rows rows;
  for (const RowLayer& layer : row_layers()) {
    std::vector<float> gradient(static_cast<std::size_t>(layer.elements), 1.0f);
    const std::vector<float> before = gradient;
    const Call call{.first = 0, .count = most_rows, .pieces = 4};
    const std::size_t needed = layer.workspace(call);
    std::vector<float> work(needed - 1);
    EXPECT_THAT(message_of([&] { layer.add(rows, call, gradient, work); }),
                testing::HasSubstr("it takes " + std::to_string(needed)))
        << layer.name;
    EXPECT_THAT(message_of([&] {
                  layer.add(rows, {.first = 0, .count = most_rows, .pieces = 0}, gradient, work);
                }),
                testing::HasSubstr("in 0 pieces"))
        << layer.name;
    EXPECT_EQ(gradient, before) << layer.name;
  }
}

TEST(LayerKernels, a_bias_behind_a_product_has_the_bits_of_a_linear_layer_onto_a_residual) {
  constexpr int inputs = 13, rows = 6;
  const auto gemm = open_gemm_backend("reference");
  const auto x = random(rows * inputs, 1), weight = random(inputs * width, 2),
             values = random(width, 3), residual = random(rows * width, 4);
  layers::Linear linear{.gemm = *gemm,
                        .shape = {.rows = rows, .inputs = inputs, .outputs = width},
                        .weight = weight,
                        .bias = values};
  std::vector<float> expected(rows * width), y(expected.size());
  layers::linear_forward_onto(linear, residual.data(), x.data(), expected.data());
  linear.bias = {};
  layers::linear_forward(linear, x.data(), y.data());
  layers::bias_forward_onto({.rows = rows, .width = width}, values, residual.data(), y.data());
  EXPECT_EQ(y, expected);
}

TEST(LayerKernels, a_bias_costs_what_its_loops_read_and_write) {
  const layers::BiasShape shape{.rows = 3, .width = 5};
  EXPECT_EQ(layers::bias_forward_onto_cost(shape), (layers::Cost{2 * 15, 4 * (3 * 15 + 5)}));
  EXPECT_EQ(layers::bias_backward_weight_cost(shape), (layers::Cost{15, 4 * (15 + 10)}));
}

}  // namespace
}  // namespace sprat::layers_test::row_pieces
