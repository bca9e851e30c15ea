// Linear layers: sums within their roundings, and parts that add up to the bits of the whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "sprat/layers.hpp"
#include "tests/unit/layers/roundings.hpp"
#include "tests/unit/layers/tree.hpp"

namespace sprat::layers_test::linear {
namespace {

constexpr int rows = 7;

struct LinearCase {
  static constexpr int inputs = 19, outputs = 11;
  const std::vector<float> x = random(rows * inputs, 1), weight = random(inputs * outputs, 2),
                           bias = random(outputs, 3), dy = random(rows * outputs, 4),
                           residual = random(rows * outputs, 5);
  static constexpr layers::LinearShape shape{.rows = rows, .inputs = inputs, .outputs = outputs};
  layers::Linear layer(const GemmBackend& gemm) const {
    return {.gemm = gemm, .shape = shape, .weight = weight, .bias = bias};
  }
};

/// Holds `got` against start plus term(0) to term(count - 1). A product rounds once, and there are
/// `count` additions, in whatever order.
template <class Term>
void expect_sum(float got, double start, int count, const Term& term) {
  double sum = start, magnitude = std::abs(start);
  for (int i = 0; i < count; ++i) {
    sum += term(i);
    magnitude += std::abs(term(i));
  }
  EXPECT_NEAR(double{got}, sum, gamma(count + 1) * magnitude);
}

TEST(LayerKernels, linear_is_x_times_the_transposed_weight_plus_what_it_is_added_to) {
  const LinearCase one;
  constexpr int inputs = LinearCase::inputs, outputs = LinearCase::outputs;
  for (const auto& gemm : backends()) {
    SCOPED_TRACE(gemm->name());
    std::vector<float> y(rows * outputs), onto(y);
    layers::linear_forward(one.layer(*gemm), one.x.data(), y.data());
    layers::linear_forward_onto(one.layer(*gemm), one.residual.data(), one.x.data(), onto.data());
    for (int row = 0; row < rows; ++row) {
      for (int o = 0; o < outputs; ++o) {
        const double bias = double{one.bias[o]};
        const auto term = [&](int i) {
          return double{one.x[row * inputs + i]} * double{one.weight[o * inputs + i]};
        };
        expect_sum(y[row * outputs + o], bias, inputs, term);
        const auto with_bias = [&](int i) { return i < inputs ? term(i) : bias; };
        expect_sum(onto[row * outputs + o], double{one.residual[row * outputs + o]}, inputs + 1,
                   with_bias);
      }
    }
  }
}

TEST(LayerKernels, linear_may_be_added_in_place) {
  const LinearCase one;
  const auto gemm = open_gemm_backend("reference");
  std::vector<float> apart(one.residual.size()), in_place = one.residual;
  layers::linear_forward_onto(one.layer(*gemm), one.residual.data(), one.x.data(), apart.data());
  layers::linear_forward_onto(one.layer(*gemm), in_place.data(), one.x.data(), in_place.data());
  EXPECT_EQ(in_place, apart);
}

TEST(LayerKernels, linear_backward_overwrites_the_inputs_gradient_and_adds_to_the_weights) {
  const LinearCase one;
  constexpr int inputs = LinearCase::inputs, outputs = LinearCase::outputs;
  for (const auto& gemm : backends()) {
    SCOPED_TRACE(gemm->name());
    std::vector<float> dx(rows * inputs, std::numeric_limits<float>::quiet_NaN()),
        dweight(inputs * outputs, 1.0f), dbias(outputs, 1.0f);
    layers::linear_backward_input(one.layer(*gemm), one.dy.data(), dx.data());
    layers::linear_backward_weight(
        *gemm, LinearCase::shape,
        {.x = one.x.data(), .dy = one.dy.data(), .weight = dweight, .bias = dbias});
    for (int row = 0; row < rows; ++row) {
      for (int i = 0; i < inputs; ++i) {
        expect_sum(dx[row * inputs + i], 0, outputs, [&](int o) {
          return double{one.dy[row * outputs + o]} * double{one.weight[o * inputs + i]};
        });
      }
    }
    for (int o = 0; o < outputs; ++o) {
      expect_sum(dbias[o], 1, rows, [&](int row) { return double{one.dy[row * outputs + o]}; });
      for (int i = 0; i < inputs; ++i) {
        expect_sum(dweight[o * inputs + i], 1, rows, [&](int row) {
          return double{one.dy[row * outputs + o]} * double{one.x[row * inputs + i]};
        });
      }
    }
  }
}

TEST(LayerKernels, linear_without_a_bias_is_the_product_alone) {
  const LinearCase one;
  const auto gemm = open_gemm_backend("reference");
  const std::vector<float> zeros(LinearCase::outputs, 0.0f);
  layers::Linear layer = one.layer(*gemm);
  std::vector<float> with(rows * LinearCase::outputs),
      without(with.size(), std::numeric_limits<float>::quiet_NaN());
  layer.bias = zeros;
  layers::linear_forward(layer, one.x.data(), with.data());
  layer.bias = {};
  layers::linear_forward(layer, one.x.data(), without.data());
  EXPECT_EQ(without, with);
  layers::linear_forward_onto(layer, one.residual.data(), one.x.data(), without.data());
  layer.bias = zeros;
  layers::linear_forward_onto(layer, one.residual.data(), one.x.data(), with.data());
  EXPECT_EQ(without, with);
}

/// The columns [first, first + count) of a matrix, as a rank would hold them.
std::vector<float> columns(const std::vector<float>& matrix, int width, int first, int count) {
  std::vector<float> part;
  for (std::size_t row = 0; row < matrix.size(); row += static_cast<std::size_t>(width)) {
    const auto begin = matrix.begin() + static_cast<std::ptrdiff_t>(row) + first;
    part.insert(part.end(), begin, begin + count);
  }
  return part;
}

TEST(LayerKernels, linear_by_parts_of_inputs_or_outputs_sums_to_the_bits_of_one) {
  constexpr int inputs = 24, outputs = 12;
  const auto gemm = open_gemm_backend("reference");
  const auto x = random(rows * inputs, 1), weight = random(inputs * outputs, 2),
             dy = random(rows * outputs, 3);
  const layers::Linear whole{.gemm = *gemm,
                             .shape = {.rows = rows, .inputs = inputs, .outputs = outputs},
                             .weight = weight};
  std::vector<float> y(rows * outputs), dx(rows * inputs);
  layers::linear_forward(whole, x.data(), y.data());
  layers::linear_backward_input(whole, dy.data(), dx.data());
  for (const int parts : {2, 4}) {
    std::vector<std::vector<float>> ys, dxs;
    for (int part = 0; part < parts; ++part) {
      const int some = inputs / parts, few = outputs / parts;
      const auto x_part = columns(x, inputs, part * some, some),
                 weight_part = columns(weight, inputs, part * some, some),
                 dy_part = columns(dy, outputs, part * few, few);
      ys.emplace_back(y.size());
      layers::linear_forward(
          {.gemm = *gemm,
           .shape = {.rows = rows, .inputs = some, .outputs = outputs, .input_parts = parts},
           .weight = weight_part},
          x_part.data(), ys.back().data());
      dxs.emplace_back(dx.size());
      layers::linear_backward_input(
          {.gemm = *gemm,
           .shape = {.rows = rows, .inputs = inputs, .outputs = few, .output_parts = parts},
           .weight = std::span(weight).subspan(static_cast<std::size_t>(part * few * inputs))},
          dy_part.data(), dxs.back().data());
    }
    EXPECT_EQ(added_by_tree(ys), y) << parts;
    EXPECT_EQ(added_by_tree(dxs), dx) << parts;
  }
}

TEST(LayerKernels, linear_of_groups_of_outputs_sums_input_gradients_to_the_bits_of_one) {
  constexpr int inputs = 5, group = 10, groups = 3, outputs = groups * group;
  const auto gemm = open_gemm_backend("reference");
  const auto weight = random(inputs * outputs, 1), dy = random(rows * outputs, 2);
  const auto gradient = [&](const std::vector<float>& some_weight,
                            const std::vector<float>& some_dy, int parts) {
    std::vector<float> dx(rows * inputs);
    const layers::Linear layer{.gemm = *gemm,
                               .shape = {.rows = rows,
                                         .inputs = inputs,
                                         .outputs = static_cast<int>(some_weight.size()) / inputs,
                                         .output_parts = parts,
                                         .output_groups = groups},
                               .weight = some_weight};
    layers::linear_backward_input(layer, some_dy.data(), dx.data());
    return dx;
  };
  const std::vector<float> whole = gradient(weight, dy, 1);
  for (const int parts : {2, 4}) {
    std::vector<std::vector<float>> sums;
    for (int part = 0; part < parts; ++part) {
      const int begin = group * part / parts, end = group * (part + 1) / parts;
      std::vector<float> some_weight, some_dy;
      for (int g = 0; g < groups; ++g) {
        const auto first = weight.begin() + std::ptrdiff_t{g * group + begin} * inputs;
        some_weight.insert(some_weight.end(), first, first + std::ptrdiff_t{end - begin} * inputs);
      }
      for (int row = 0; row < rows; ++row) {
        for (int g = 0; g < groups; ++g) {
          const auto first = dy.begin() + std::ptrdiff_t{row * outputs + g * group + begin};
          some_dy.insert(some_dy.end(), first, first + end - begin);
        }
      }
      sums.push_back(gradient(some_weight, some_dy, parts));
    }
    EXPECT_EQ(added_by_tree(sums), whole) << parts;
  }
}

TEST(LayerKernels, linear_adds_a_calls_product_to_the_weights_gradient_as_a_whole) {
  const LinearCase one;
  const auto gemm = open_gemm_backend("reference");
  std::vector<float> alone(one.weight.size(), 0.0f), onto = one.weight;
  for (auto* weight : {&alone, &onto}) {
    layers::linear_backward_weight(*gemm, LinearCase::shape,
                                   {.x = one.x.data(), .dy = one.dy.data(), .weight = *weight});
  }
  for (std::size_t i = 0; i < alone.size(); ++i) {
    ASSERT_EQ(onto[i], one.weight[i] + alone[i]) << i;
  }
}

TEST(LayerKernels, linear_costs_its_product_and_its_bias) {
  const layers::LinearShape shape{.rows = 3, .inputs = 5, .outputs = 7};
  const std::uint64_t bytes = 4 * (3 * 5 + 3 * 7 + 5 * 7);
  EXPECT_EQ(layers::linear_forward_cost(shape), (layers::Cost{2 * 3 * 5 * 7 + 3 * 7, bytes}));
  EXPECT_EQ(layers::linear_backward_input_cost(shape), (layers::Cost{2 * 3 * 5 * 7, bytes}));
  EXPECT_EQ(layers::linear_backward_weight_cost(shape),
            (layers::Cost{2 * 3 * 5 * 7 + 3 * 7, bytes}));
  // Large ones do not wrap: a head of 128 Ki tokens for 2^20 rows.
  EXPECT_EQ(
      layers::linear_backward_input_cost({.rows = 1 << 20, .inputs = 1 << 13, .outputs = 1 << 17})
          .flops,
      std::uint64_t{2} << 50);
}

}  // namespace
}  // namespace sprat::layers_test::linear
