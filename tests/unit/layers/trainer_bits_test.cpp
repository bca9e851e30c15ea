// All layers but attention, whose sums go by blocks, have the bits of the trainer's own kernels,
// which they replace: losses of runs go on as they were.
#include <gtest/gtest.h>

#include <vector>

#include "sprat/layers.hpp"
#include "tests/unit/layers/roundings.hpp"
#include "train/model/layers.hpp"

namespace sprat::layers_test::trainer_bits {
namespace {

constexpr int rows_of_all = 7;

TEST(LayerKernels, linear_has_the_bits_of_the_trainers) {
  constexpr int rows = rows_of_all, inputs = 19, outputs = 11;
  const auto x = random(rows * inputs, 1), weight = random(inputs * outputs, 2),
             bias = random(outputs, 3), dy = random(rows * outputs, 4),
             residual = random(rows * outputs, 5);
  for (const auto& gemm : backends()) {
    const layers::LinearShape shape{.rows = rows, .inputs = inputs, .outputs = outputs};
    const layers::Linear ours{.gemm = *gemm, .shape = shape, .weight = weight, .bias = bias};
    const train::Linear theirs{.gemm = *gemm,
                               .rows = rows,
                               .inputs = inputs,
                               .outputs = outputs,
                               .weight = weight,
                               .bias = bias};
    std::vector<float> y(rows * outputs), same(y), onto(y), same_onto(y), dx(rows * inputs),
        same_dx(dx), dweight = weight, same_dweight = weight, dbias = bias, same_dbias = bias;
    layers::linear_forward(ours, x.data(), y.data());
    train::linear_forward(theirs, x.data(), same.data());
    EXPECT_EQ(y, same);
    layers::linear_forward_onto(ours, residual.data(), x.data(), onto.data());
    train::linear_forward_onto(theirs, residual.data(), x.data(), same_onto.data());
    EXPECT_EQ(onto, same_onto);
    layers::linear_backward_input(ours, dy.data(), dx.data());
    layers::linear_backward_weight(
        *gemm, shape, {.x = x.data(), .dy = dy.data(), .weight = dweight, .bias = dbias});
    train::linear_backward(theirs, {.x = x.data(),
                                    .dy = dy.data(),
                                    .dx = same_dx.data(),
                                    .weight = same_dweight,
                                    .bias = same_dbias});
    EXPECT_EQ(dx, same_dx);
    EXPECT_EQ(dweight, same_dweight);
    EXPECT_EQ(dbias, same_dbias);
  }
}

TEST(LayerKernels, layer_norm_has_the_bits_of_the_trainers) {
  constexpr int rows = rows_of_all;
  for (const int width : {16, 24, 41}) {
    const auto count = static_cast<std::size_t>(rows * width);
    const auto x = random(count, 1), dy = random(count, 4);
    const auto gain = random(std::size_t(width), 2), bias = random(std::size_t(width), 3);
    const layers::LayerNormShape shape{.rows = rows, .width = width};
    const train::LayerNorm theirs{.rows = rows, .width = width, .gain = gain, .bias = bias};
    std::vector<float> y(count), mean(rows), reciprocal(rows), same_y(count), same_mean(rows),
        same_reciprocal(rows);
    layers::layer_norm_forward({.shape = shape, .gain = gain, .bias = bias}, x.data(), y.data(),
                               mean.data(), reciprocal.data());
    train::layer_norm_forward(theirs, x.data(), same_y.data(), same_mean.data(),
                              same_reciprocal.data());
    EXPECT_EQ(y, same_y);
    EXPECT_EQ(mean, same_mean);
    EXPECT_EQ(reciprocal, same_reciprocal);
    std::vector<float> dx = y, same_dx = y, dgain = gain, same_dgain = gain, dbias = bias,
                       same_dbias = bias;
    const layers::LayerNormPass pass{
        .x = x.data(), .mean = mean.data(), .reciprocal = reciprocal.data(), .dy = dy.data()};
    layers::layer_norm_backward_input(shape, gain, pass, dx.data());
    layers::layer_norm_backward_weight(shape, pass, dgain, dbias);
    train::layer_norm_backward(theirs, {.x = x.data(),
                                        .mean = mean.data(),
                                        .reciprocal = reciprocal.data(),
                                        .dy = dy.data(),
                                        .dx = same_dx.data(),
                                        .gain = same_dgain,
                                        .bias = same_dbias});
    EXPECT_EQ(dx, same_dx);
    EXPECT_EQ(dgain, same_dgain);
    EXPECT_EQ(dbias, same_dbias);
  }
}

TEST(LayerKernels, gelu_has_the_bits_of_the_trainers) {
  std::vector<float> x = random(1000, 1);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] *= static_cast<float>(i) / 20;  // past both ends of the exponential too
  }
  std::vector<float> y(x.size()), same(y), dy = random(x.size(), 2), same_dy = dy;
  layers::gelu_forward(x, y.data());
  train::gelu_forward(x, same.data());
  EXPECT_EQ(y, same);
  layers::gelu_backward_input(x, dy.data());
  train::gelu_backward(x, same_dy.data());
  EXPECT_EQ(dy, same_dy);
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

TEST(LayerKernels, cross_entropy_has_the_bits_of_the_trainers) {
  constexpr int rows = rows_of_all, vocabulary = 256;
  const auto logits = random(rows * vocabulary, 1);
  std::vector<std::int32_t> targets;
  for (int row = 0; row < rows; ++row) {
    targets.push_back(row * 41 % vocabulary);
  }
  const std::vector<std::uint8_t> bytes(targets.begin(), targets.end());
  std::vector<float> gradient = logits, same = logits, highest(rows), share(rows);
  std::vector<double> losses(rows);
  const layers::CrossEntropy layer{.vocabulary = vocabulary, .targets = targets};
  const layers::CrossEntropyRows kept{
      .highest = highest.data(), .share = share.data(), .loss = losses.data()};
  layers::cross_entropy_forward(layer, gradient.data(), kept);
  layers::cross_entropy_backward_input(layer, kept, 0.37f, gradient.data());
  double sum = 0;
  for (const double loss : losses) {
    sum += loss;
  }
  EXPECT_EQ(sum, train::cross_entropy(same, bytes, 0.37f));
  EXPECT_EQ(gradient, same);
}

}  // namespace
}  // namespace sprat::layers_test::trainer_bits
