// The layers: forward and backward within bounds of double precision, the bits of the trainer's own
// kernels, and the same bits however rows are split.
//
// Bounds are a count of roundings times f32's epsilon times the magnitude of what is added up.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "sprat/error.hpp"
#include "sprat/layers.hpp"
#include "train/model/layers.hpp"

namespace sprat::layer_kernels_test {
namespace {

constexpr double epsilon = std::numeric_limits<float>::epsilon();

std::vector<float> random(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(static_cast<std::int32_t>(generator())) * 0x1p-30f;
  }
  return values;
}

std::vector<std::shared_ptr<const GemmBackend>> backends() {
  return {open_gemm_backend(choose_gemm_backend()), open_gemm_backend("reference")};
}

constexpr int rows = 7;

struct LinearCase {
  static constexpr int inputs = 19, outputs = 11;
  const std::vector<float> x = random(rows * inputs, 1), weight = random(inputs * outputs, 2),
                           bias = random(outputs, 3), dy = random(rows * outputs, 4),
                           residual = random(rows * outputs, 5);
  static constexpr layers::LinearShape shape{.rows = rows, .inputs = inputs, .outputs = outputs};
  layers::Linear layer(const GemmBackend& gemm, int count = rows) const {
    layers::Linear layer{.gemm = gemm, .shape = shape, .weight = weight, .bias = bias};
    layer.shape.rows = count;
    return layer;
  }
};

TEST(LayerKernels, linear_and_its_gradients_are_their_sums) {
  const LinearCase one;
  constexpr int inputs = LinearCase::inputs, outputs = LinearCase::outputs;
  for (const auto& gemm : backends()) {
    std::vector<float> y(rows * outputs), dx(rows * inputs), dweight(inputs * outputs, 1.0f),
        dbias(outputs, 1.0f);
    layers::linear_forward(one.layer(*gemm), one.x.data(), y.data());
    layers::linear_backward_input(one.layer(*gemm), one.dy.data(), dx.data());
    layers::linear_backward_weight(
        *gemm, LinearCase::shape,
        {.x = one.x.data(), .dy = one.dy.data(), .weight = dweight, .bias = dbias});
    // Each is a start plus a sum of count terms left(i) * right(i).
    const auto expect = [&](float got, double start, int count, const auto& term) {
      double sum = start, magnitude = std::abs(start);
      for (int i = 0; i < count; ++i) {
        sum += term(i);
        magnitude += std::abs(term(i));
      }
      EXPECT_NEAR(double{got}, sum, (count + 2) * epsilon * magnitude) << gemm->name();
    };
    for (int row = 0; row < rows; ++row) {
      for (int o = 0; o < outputs; ++o) {
        expect(y[row * outputs + o], double{one.bias[o]}, inputs, [&](int i) {
          return double{one.x[row * inputs + i]} * double{one.weight[o * inputs + i]};
        });
      }
      for (int i = 0; i < inputs; ++i) {
        expect(dx[row * inputs + i], 0, outputs, [&](int o) {
          return double{one.dy[row * outputs + o]} * double{one.weight[o * inputs + i]};
        });
      }
    }
    for (int o = 0; o < outputs; ++o) {
      expect(dbias[o], 1, rows, [&](int row) { return double{one.dy[row * outputs + o]}; });
      for (int i = 0; i < inputs; ++i) {
        expect(dweight[o * inputs + i], 1, rows, [&](int row) {
          return double{one.dy[row * outputs + o]} * double{one.x[row * inputs + i]};
        });
      }
    }
  }
}

TEST(LayerKernels, linear_has_the_bits_of_the_trainers) {
  const LinearCase one;
  constexpr int inputs = LinearCase::inputs, outputs = LinearCase::outputs;
  for (const auto& gemm : backends()) {
    const train::Linear theirs{.gemm = *gemm,
                               .rows = rows,
                               .inputs = inputs,
                               .outputs = outputs,
                               .weight = one.weight,
                               .bias = one.bias};
    std::vector<float> y(rows * outputs), same(y), onto(y), same_onto(y), dx(rows * inputs),
        same_dx(dx), dweight = one.weight, same_dweight = one.weight, dbias = one.bias,
                     same_dbias = one.bias;
    layers::linear_forward(one.layer(*gemm), one.x.data(), y.data());
    train::linear_forward(theirs, one.x.data(), same.data());
    EXPECT_EQ(y, same);
    layers::linear_forward_onto(one.layer(*gemm), one.residual.data(), one.x.data(), onto.data());
    train::linear_forward_onto(theirs, one.residual.data(), one.x.data(), same_onto.data());
    EXPECT_EQ(onto, same_onto);
    layers::linear_backward_input(one.layer(*gemm), one.dy.data(), dx.data());
    layers::linear_backward_weight(
        *gemm, LinearCase::shape,
        {.x = one.x.data(), .dy = one.dy.data(), .weight = dweight, .bias = dbias});
    train::linear_backward(theirs, {.x = one.x.data(),
                                    .dy = one.dy.data(),
                                    .dx = same_dx.data(),
                                    .weight = same_dweight,
                                    .bias = same_dbias});
    EXPECT_EQ(dx, same_dx);
    EXPECT_EQ(dweight, same_dweight);
    EXPECT_EQ(dbias, same_dbias);
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
  // The columns [first, first + count) of a matrix, as a rank would hold them.
  const auto columns = [](const std::vector<float>& matrix, int width, int first, int count) {
    std::vector<float> part;
    for (std::size_t row = 0; row < matrix.size(); row += static_cast<std::size_t>(width)) {
      const auto begin = matrix.begin() + static_cast<std::ptrdiff_t>(row) + first;
      part.insert(part.end(), begin, begin + count);
    }
    return part;
  };
  const auto add = [](std::vector<float>& left, const std::vector<float>& right) {
    for (std::size_t i = 0; i < left.size(); ++i) {
      left[i] += right[i];
    }
  };
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
    for (auto* sums : {&ys, &dxs}) {
      for (int distance = 1; distance < parts; distance *= 2) {
        for (int part = 0; part < parts; part += 2 * distance) {
          add((*sums)[part], (*sums)[part + distance]);
        }
      }
    }
    EXPECT_EQ(ys[0], y) << parts;
    EXPECT_EQ(dxs[0], dx) << parts;
  }
}

struct NormCase {
  explicit NormCase(int columns)
      : width(columns),
        x(random(static_cast<std::size_t>(rows * width), 1)),
        gain(random(static_cast<std::size_t>(width), 2)),
        bias(random(static_cast<std::size_t>(width), 3)),
        dy(random(x.size(), 4)),
        y(x.size()),
        mean(rows),
        reciprocal(rows) {
    layers::layer_norm_forward({.shape = shape(), .gain = gain, .bias = bias}, x.data(), y.data(),
                               mean.data(), reciprocal.data());
  }
  layers::LayerNormShape shape() const { return {.rows = rows, .width = width}; }
  layers::LayerNormPass pass() const {
    return {.x = x.data(), .mean = mean.data(), .reciprocal = reciprocal.data(), .dy = dy.data()};
  }
  const int width;
  const std::vector<float> x, gain, bias, dy;
  std::vector<float> y, mean, reciprocal;
};

/// sum of y * dy of one row, in double precision, as a function of its inputs.
double norm_along(const std::vector<double>& x, const NormCase& one, int row) {
  const std::size_t width = x.size();
  double center = 0, variance = 0, sum = 0;
  for (const double value : x) {
    center += value / static_cast<double>(width);
  }
  for (const double value : x) {
    variance += (value - center) * (value - center) / static_cast<double>(width);
  }
  for (std::size_t i = 0; i < width; ++i) {
    const double y = (x[i] - center) / std::sqrt(variance + double{1e-5f}) * double{one.gain[i]};
    sum += y * double{one.dy[static_cast<std::size_t>(row) * width + i]};
  }
  return sum;
}

TEST(LayerKernels, layer_norm_backward_input_is_the_slope) {
  for (const int width : {16, 24, 41}) {
    const NormCase one(width);
    std::vector<float> dx(one.x.size(), 0.0f);
    layers::layer_norm_backward_input(one.shape(), one.gain, one.pass(), dx.data());
    for (int row = 0; row < rows; ++row) {
      const auto* begin = one.x.data() + std::ptrdiff_t{row} * width;
      std::vector<double> x(begin, begin + width);
      double magnitude = 0;  // of dy * gain, of which every term of a gradient is a share
      for (int i = 0; i < width; ++i) {
        magnitude += std::abs(double{one.dy[row * width + i]} * double{one.gain[i]});
      }
      for (int i = 0; i < width; ++i) {
        // In f64 the difference errs by 1e-10 of its terms, far below f32's epsilon.
        constexpr double step = 1e-5;
        const double home = x[i];
        x[i] = home + step;
        const double above = norm_along(x, one, row);
        x[i] = home - step;
        const double below = norm_along(x, one, row);
        x[i] = home;
        // Deviations of a row are at most sqrt(width); mean, variance, both sums and the products
        // round less than 4 (width + 8) times.
        EXPECT_NEAR(double{dx[row * width + i]}, (above - below) / (2 * step),
                    4 * (width + 8) * epsilon * double{one.reciprocal[row]} * magnitude)
            << "width " << width << " row " << row;
      }
    }
  }
}

TEST(LayerKernels, layer_norm_backward_weight_sums_over_rows) {
  const NormCase one(24);
  std::vector<float> gain(24, 0.5f), bias(24, -0.5f);
  layers::layer_norm_backward_weight(one.shape(), one.pass(), gain, bias);
  for (int i = 0; i < 24; ++i) {
    double dgain = 0.5, dbias = -0.5, magnitude = 0.5;
    for (int row = 0; row < rows; ++row) {
      const double dy = double{one.dy[row * 24 + i]};
      // The forward's own mean and deviation, which another test holds.
      const double unit =
          (double{one.x[row * 24 + i]} - double{one.mean[row]}) * double{one.reciprocal[row]};
      dgain += dy * unit;
      dbias += dy;
      magnitude += std::abs(dy) * (1 + std::abs(unit));
    }
    EXPECT_NEAR(double{gain[i]}, dgain, (rows + 3) * epsilon * magnitude);
    EXPECT_NEAR(double{bias[i]}, dbias, (rows + 3) * epsilon * magnitude);
  }
}

TEST(LayerKernels, layer_norm_has_the_bits_of_the_trainers) {
  for (const int width : {16, 24, 41}) {
    const NormCase one(width);
    const train::LayerNorm theirs{.rows = rows, .width = width, .gain = one.gain, .bias = one.bias};
    std::vector<float> y(one.y.size()), mean(rows), reciprocal(rows);
    train::layer_norm_forward(theirs, one.x.data(), y.data(), mean.data(), reciprocal.data());
    EXPECT_EQ(one.y, y);
    EXPECT_EQ(one.mean, mean);
    EXPECT_EQ(one.reciprocal, reciprocal);
    std::vector<float> dx = one.y, same_dx = one.y, gain = one.gain, same_gain = gain,
                       bias = one.bias, same_bias = bias;
    layers::layer_norm_backward_input(one.shape(), one.gain, one.pass(), dx.data());
    layers::layer_norm_backward_weight(one.shape(), one.pass(), gain, bias);
    train::layer_norm_backward(theirs, {.x = one.x.data(),
                                        .mean = one.mean.data(),
                                        .reciprocal = one.reciprocal.data(),
                                        .dy = one.dy.data(),
                                        .dx = same_dx.data(),
                                        .gain = same_gain,
                                        .bias = same_bias});
    EXPECT_EQ(dx, same_dx);
    EXPECT_EQ(gain, same_gain);
    EXPECT_EQ(bias, same_bias);
  }
}

TEST(LayerKernels, gelu_has_the_bits_of_the_trainers) {
  // Past both ends of the exponential too.
  std::vector<float> x = random(1000, 1);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] *= static_cast<float>(i) / 20;
  }
  std::vector<float> y(x.size()), same(y), dy = random(x.size(), 2), same_dy = dy;
  layers::gelu_forward(x, y.data());
  train::gelu_forward(x, same.data());
  EXPECT_EQ(y, same);
  layers::gelu_backward_input(x, dy.data());
  train::gelu_backward(x, same_dy.data());
  EXPECT_EQ(dy, same_dy);
}

TEST(LayerKernels, residual_adds_and_its_gradient_is_added) {
  const auto x = random(37, 1), branch = random(37, 2);
  std::vector<float> y(37), dx = x;
  layers::residual_forward(x, branch.data(), y.data());
  layers::residual_backward_input(branch, dx.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(y[i], x[i] + branch[i]);
  }
  EXPECT_EQ(dx, y);
}

TEST(LayerKernels, embeddings_have_the_bits_of_the_trainers) {
  constexpr int width = 5, length = 6, sequences = 3, count = sequences * length;
  const auto token = random(256 * width, 1), position = random(length * width, 2),
             dx = random(count * width, 3);
  std::vector<std::uint8_t> bytes;
  std::vector<std::int32_t> tokens;
  for (int row = 0; row < count; ++row) {
    bytes.push_back(static_cast<std::uint8_t>(row * row * 83 % 7 * 40));  // some come twice
    tokens.push_back(bytes.back());
  }
  const layers::EmbeddingShape shape{.vocabulary = 256, .width = width};
  const layers::PositionShape places{.rows = count, .length = length, .width = width};
  const train::Embedding theirs{.width = width, .length = length, .tokens = bytes};
  std::vector<float> x(count * width), same(x);
  layers::embedding_forward(shape, tokens, token, x.data());
  layers::position_forward(places, position, x.data());
  train::embedding_forward(theirs, token, position, same.data());
  EXPECT_EQ(x, same);
  std::vector<float> dtoken = token, same_dtoken = token, dposition = position,
                     same_dposition = position;
  layers::embedding_backward_weight(shape, tokens, dx.data(), dtoken);
  layers::position_backward_weight(places, dx.data(), dposition);
  train::embedding_backward(theirs, dx.data(), same_dtoken, same_dposition);
  EXPECT_EQ(dtoken, same_dtoken);
  EXPECT_EQ(dposition, same_dposition);
}

TEST(LayerKernels, embedding_takes_tokens_wider_than_a_byte) {
  constexpr int vocabulary = 50'257, width = 3;
  const auto table = random(std::size_t{vocabulary} * width, 1);
  const std::vector<std::int32_t> tokens = {50'256, 0, 300, 50'256};
  const layers::EmbeddingShape shape{.vocabulary = vocabulary, .width = width};
  std::vector<float> x(tokens.size() * width), gradient(table.size(), 0.0f);
  layers::embedding_forward(shape, tokens, table, x.data());
  const std::vector<float> ones(x.size(), 1.0f);
  layers::embedding_backward_weight(shape, tokens, ones.data(), gradient);
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    for (int i = 0; i < width; ++i) {
      EXPECT_EQ(x[row * width + i], table[tokens[row] * width + i]);
      EXPECT_EQ(gradient[tokens[row] * width + i], tokens[row] == 50'256 ? 2.0f : 1.0f);
    }
  }
}

TEST(LayerKernels, positions_begin_where_they_are_told) {
  const auto table = random(10 * 2, 1);
  std::vector<float> x(4 * 2, 0.0f);
  layers::position_forward({.rows = 4, .length = 2, .width = 2, .first = 7}, table, x.data());
  const std::vector<float> once(table.begin() + 14, table.begin() + 18);
  std::vector<float> twice = once;
  twice.insert(twice.end(), once.begin(), once.end());
  EXPECT_EQ(x, twice);
}

TEST(LayerKernels, what_is_not_in_a_table_is_refused_before_anything_is_written) {
  std::vector<float> x(4, 3.0f);
  const std::vector<float> table(8, 1.0f);
  const layers::EmbeddingShape shape{.vocabulary = 4, .width = 2};
  for (const std::int32_t token : {-1, 4, 1 << 30}) {
    const std::vector<std::int32_t> tokens = {0, token};
    EXPECT_THROW(layers::embedding_forward(shape, tokens, table, x.data()), Error) << token;
    EXPECT_THROW(layers::embedding_backward_weight(shape, tokens, table.data(), x), Error) << token;
    float row[2];
    double loss[2];
    EXPECT_THROW(layers::cross_entropy_forward({.vocabulary = 4, .targets = tokens}, table.data(),
                                               {.highest = row, .share = row, .loss = loss}),
                 Error)
        << token;
    EXPECT_THROW(layers::cross_entropy_backward_input({.vocabulary = 4, .targets = tokens},
                                                      {.highest = row, .share = row}, 1, x.data()),
                 Error)
        << token;
  }
  EXPECT_THROW(
      layers::position_forward({.rows = 2, .length = 2, .width = 2, .first = 3}, table, x.data()),
      Error);
  EXPECT_EQ(x, std::vector<float>(4, 3.0f));
}

struct LossCase {
  explicit LossCase(int size) : vocabulary(size) {
    for (int row = 0; row < rows; ++row) {
      targets.push_back(row % 3 == 0 ? size - 1 : row * 31 % size);
    }
    for (float& logit : logits) {
      logit *= 4;
    }
  }
  layers::CrossEntropy layer() const { return {.vocabulary = vocabulary, .targets = targets}; }
  layers::CrossEntropyRows kept() {
    return {.highest = highest.data(), .share = share.data(), .loss = loss.data()};
  }
  int vocabulary;
  std::vector<std::int32_t> targets;
  std::vector<float> logits = random(std::size_t(rows) * std::size_t(vocabulary), 1);
  std::vector<float> highest = std::vector<float>(rows), share = highest;
  std::vector<double> loss = std::vector<double>(rows);
};

TEST(LayerKernels, cross_entropy_is_minus_log_probability_and_its_slope) {
  for (const int vocabulary : {1, 2, 17, 1000}) {
    LossCase one(vocabulary);
    std::vector<float> gradient = one.logits;
    layers::cross_entropy_forward(one.layer(), gradient.data(), one.kept());
    EXPECT_EQ(gradient, one.logits);
    layers::cross_entropy_backward_input(one.layer(), one.kept(), 0.25f, gradient.data());
    for (int row = 0; row < rows; ++row) {
      const auto* logits = one.logits.data() + std::ptrdiff_t{row} * vocabulary;
      double total = 0;
      for (int i = 0; i < vocabulary; ++i) {
        total += std::exp(double{logits[i]});
      }
      const double log_total = std::log(total);
      // Each exponential errs by 2 ulp and, in its argument, by half an ulp of at most 16; the sum
      // of lanes rounds vocabulary / 16 + 5 times.
      const double roundings = 2 + 8 + vocabulary / 16.0 + 5;
      EXPECT_NEAR(one.loss[row], log_total - double{logits[one.targets[row]]}, roundings * epsilon);
      EXPECT_NEAR(double{one.highest[row]} - std::log(double{one.share[row]}), log_total,
                  (roundings + 1) * epsilon);
      for (int i = 0; i < vocabulary; ++i) {
        const double probability = std::exp(double{logits[i]} - log_total);
        EXPECT_NEAR(double{gradient[row * vocabulary + i]},
                    0.25 * (probability - (i == one.targets[row])), 2 * roundings * epsilon * 0.25)
            << "vocabulary " << vocabulary;
      }
    }
  }
}

TEST(LayerKernels, cross_entropy_has_the_bits_of_the_trainers) {
  LossCase one(256);
  const std::vector<std::uint8_t> targets(one.targets.begin(), one.targets.end());
  std::vector<float> gradient = one.logits, same = one.logits;
  layers::cross_entropy_forward(one.layer(), gradient.data(), one.kept());
  layers::cross_entropy_backward_input(one.layer(), one.kept(), 0.37f, gradient.data());
  const double loss = train::cross_entropy(same, targets, 0.37f);
  double sum = 0;
  for (const double row : one.loss) {
    sum += row;
  }
  EXPECT_EQ(sum, loss);
  EXPECT_EQ(gradient, same);
}

/// Every layer but attention, run on rows [begins[0], begins[1]), [begins[1], begins[2]), ...; all
/// that comes out, one after another.
std::vector<float> run_in_calls(const std::vector<int>& begins) {
  const LinearCase one;
  const NormCase norm(24);
  LossCase loss(33);
  const auto gemm = open_gemm_backend("reference");
  constexpr int inputs = LinearCase::inputs, outputs = LinearCase::outputs;
  std::vector<float> y(rows * outputs), dx(rows * inputs), normed(norm.x.size()), mean(rows),
      reciprocal(rows), dnorm(norm.x.size(), 0.0f), gain(24, 0.0f), bias(24, 0.0f),
      logits = loss.logits, table(33 * 24, 0.0f);
  for (std::size_t call = 0; call + 1 < begins.size(); ++call) {
    const int first = begins[call], count = begins[call + 1] - first;
    layers::linear_forward(one.layer(*gemm, count), one.x.data() + first * inputs,
                           y.data() + first * outputs);
    layers::linear_backward_input(one.layer(*gemm, count), one.dy.data() + first * outputs,
                                  dx.data() + first * inputs);
    const layers::LayerNormShape shape{.rows = count, .width = 24};
    layers::layer_norm_forward({.shape = shape, .gain = norm.gain, .bias = norm.bias},
                               norm.x.data() + first * 24, normed.data() + first * 24,
                               mean.data() + first, reciprocal.data() + first);
    const layers::LayerNormPass pass{.x = norm.x.data() + first * 24,
                                     .mean = mean.data() + first,
                                     .reciprocal = reciprocal.data() + first,
                                     .dy = norm.dy.data() + first * 24};
    layers::layer_norm_backward_input(shape, norm.gain, pass, dnorm.data() + first * 24);
    layers::layer_norm_backward_weight(shape, pass, gain, bias);
    const auto targets = std::span(loss.targets).subspan(std::size_t(first), std::size_t(count));
    const layers::CrossEntropy layer{.vocabulary = 33, .targets = targets};
    const layers::CrossEntropyRows kept{.highest = loss.highest.data() + first,
                                        .share = loss.share.data() + first,
                                        .loss = loss.loss.data() + first};
    layers::cross_entropy_forward(layer, logits.data() + first * 33, kept);
    layers::cross_entropy_backward_input(layer, kept, 0.3f, logits.data() + first * 33);
    layers::embedding_backward_weight({.vocabulary = 33, .width = 24}, targets,
                                      norm.dy.data() + first * 24, table);
  }
  std::vector<float> all;
  for (const auto* values : {&y, &dx, &normed, &mean, &reciprocal, &dnorm, &gain, &bias, &logits,
                             &table, &loss.highest, &loss.share}) {
    all.insert(all.end(), values->begin(), values->end());
  }
  all.insert(all.end(), loss.loss.begin(), loss.loss.end());
  return all;
}

TEST(LayerKernels, bits_do_not_depend_on_how_rows_are_split_into_calls) {
  const std::vector<float> whole = run_in_calls({0, rows});
  EXPECT_EQ(run_in_calls({0, 1, 2, 3, 4, 5, 6, rows}), whole);
  EXPECT_EQ(run_in_calls({0, 3, 3, rows}), whole);
}

TEST(LayerKernels, costs_count_operations_and_operands) {
  const layers::LinearShape linear{.rows = 3, .inputs = 5, .outputs = 7};
  const std::uint64_t bytes = 4 * (3 * 5 + 3 * 7 + 5 * 7);
  EXPECT_EQ(layers::linear_forward_cost(linear), (layers::Cost{2 * 3 * 5 * 7 + 3 * 7, bytes}));
  EXPECT_EQ(layers::linear_backward_input_cost(linear), (layers::Cost{2 * 3 * 5 * 7, bytes}));
  EXPECT_EQ(layers::linear_backward_weight_cost(linear),
            (layers::Cost{2 * 3 * 5 * 7 + 3 * 7, bytes}));
  EXPECT_EQ(layers::layer_norm_forward_cost({.rows = 3, .width = 5}).bytes,
            4u * (2 * 15 + 2 * 3 + 2 * 5));
  EXPECT_EQ(layers::residual_cost(9), (layers::Cost{9, 3 * 4 * 9}));
  EXPECT_EQ(layers::gelu_forward_cost(9).bytes, 2u * 4 * 9);
  // Large ones do not wrap: a vocabulary of 128 Ki for 2^20 rows.
  EXPECT_EQ(layers::cross_entropy_forward_cost(1 << 17, 1 << 20).flops, std::uint64_t{4} << 37);
  EXPECT_EQ(
      layers::linear_backward_input_cost({.rows = 1 << 20, .inputs = 1 << 13, .outputs = 1 << 17})
          .flops,
      std::uint64_t{2} << 50);
}

}  // namespace
}  // namespace sprat::layer_kernels_test
