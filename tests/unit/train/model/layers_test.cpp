// Each layer's forward against its definition in double precision.
//
// Tolerances are a count of roundings times f32's epsilon times the magnitude of what is added up.
#include "train/model/layers.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "train/model/attention.hpp"
#include "train/model/random.hpp"

namespace sprat::train {
namespace {

constexpr double epsilon = std::numeric_limits<float>::epsilon();

std::vector<float> normals(std::size_t count, const char* purpose) {
  const RandomStream stream(1, purpose);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(stream.normal(i));
  }
  return values;
}

std::shared_ptr<const GemmBackend> gemm_backend() {
  return open_gemm_backend(choose_gemm_backend());
}

TEST(Layers, linear_is_x_times_the_transposed_weight_plus_bias) {
  constexpr int rows = 7, inputs = 19, outputs = 11;
  const auto x = normals(rows * inputs, "x"), weight = normals(inputs * outputs, "w"),
             bias = normals(outputs, "b"), residual = normals(rows * outputs, "r");
  const auto backend = gemm_backend();
  const Linear layer{.gemm = *backend,
                     .rows = rows,
                     .inputs = inputs,
                     .outputs = outputs,
                     .weight = weight,
                     .bias = bias};
  std::vector<float> y(rows * outputs), onto(rows * outputs);
  linear_forward(layer, x.data(), y.data());
  linear_forward_onto(layer, residual.data(), x.data(), onto.data());
  for (int row = 0; row < rows; ++row) {
    for (int output = 0; output < outputs; ++output) {
      double expected = double{bias[output]}, magnitude = std::abs(expected);
      for (int input = 0; input < inputs; ++input) {
        const double term =
            double{x[row * inputs + input]} * double{weight[output * inputs + input]};
        expected += term;
        magnitude += std::abs(term);
      }
      const int at = row * outputs + output;
      const double more = double{residual[at]};
      EXPECT_NEAR(double{y[at]}, expected, (inputs + 1) * epsilon * magnitude);
      EXPECT_NEAR(double{onto[at]}, expected + more,
                  (inputs + 2) * epsilon * (magnitude + std::abs(more)));
    }
  }
}

TEST(Layers, layer_norm_makes_rows_of_mean_0_and_variance_1) {
  for (const int width : {16, 24, 40}) {
    constexpr int rows = 5;
    const auto x = normals(rows * width, "x"), gain = normals(width, "g"),
               bias = normals(width, "b");
    std::vector<float> y(rows * width), mean(rows), reciprocal(rows);
    layer_norm_forward({.rows = rows, .width = width, .gain = gain, .bias = bias}, x.data(),
                       y.data(), mean.data(), reciprocal.data());
    for (int row = 0; row < rows; ++row) {
      double center = 0, variance = 0;
      for (int i = 0; i < width; ++i) {
        center += double{x[row * width + i]} / width;
      }
      for (int i = 0; i < width; ++i) {
        variance += std::pow(double{x[row * width + i]} - center, 2) / width;
      }
      for (int i = 0; i < width; ++i) {
        const double unit = (double{x[row * width + i]} - center) / std::sqrt(variance + 1e-5);
        const double expected = unit * double{gain[i]} + double{bias[i]};
        const double magnitude =
            (std::abs(unit) + 1) * std::abs(double{gain[i]}) + std::abs(double{bias[i]});
        EXPECT_NEAR(double{y[row * width + i]}, expected, (width + 8) * epsilon * magnitude)
            << "width " << width << " row " << row;
      }
    }
  }
}

TEST(Layers, gelu_is_the_tanh_form) {
  std::vector<float> x;
  for (float value = -12.0f; value < 12.0f; value += 0.01f) {
    x.push_back(value);
  }
  std::vector<float> y(x.size());
  gelu_forward(x, y.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = double{x[i]};
    const double u = std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
    // x / (1 + e^-2u), so that the reference keeps its digits where tanh(u) is close to -1.
    const double expected = v / (1 + std::exp(-2 * u));
    // u has 4 roundings, and the exponential turns relative error of 2u into absolute.
    const double bound = (8 + 8 * std::abs(u)) * epsilon * std::abs(expected) + 1e-30;
    // Below e^-87 the gate is 0.
    EXPECT_NEAR(double{y[i]}, expected, std::max(bound, 12 * std::exp(-87.0))) << "at " << v;
  }
}

TEST(Layers, gelu_backward_is_its_derivative) {
  std::vector<float> x;
  for (float value = -8.0f; value < 8.0f; value += 0.01f) {
    x.push_back(value);
  }
  std::vector<float> slope(x.size(), 1.0f);
  gelu_backward(x, slope.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = double{x[i]};
    const double u = std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
    const double du = std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * v * v);
    const double gate = 1 / (1 + std::exp(-2 * u));
    const double expected = gate + 2 * v * gate * (1 - gate) * du;
    const double magnitude = 1 + std::abs(2 * v * gate * du);
    EXPECT_NEAR(double{slope[i]}, expected, (16 + 8 * std::abs(u)) * epsilon * magnitude) << v;
  }
}

TEST(Layers, cross_entropy_sums_minus_log_probability_and_leaves_its_gradient) {
  constexpr int rows = 6, width = 256;
  const auto logits = normals(rows * width, "l");
  const std::vector<std::uint8_t> targets = {0, 255, 17, 128, 3, 90};
  std::vector<float> gradient = logits;
  const double loss = cross_entropy(gradient, targets, 0.25f);
  double expected = 0;
  for (int row = 0; row < rows; ++row) {
    double total = 0;
    for (int i = 0; i < width; ++i) {
      total += std::exp(double{logits[row * width + i]});
    }
    expected += std::log(total) - double{logits[row * width + targets[row]]};
    for (int i = 0; i < width; ++i) {
      const double probability = std::exp(double{logits[row * width + i]}) / total;
      const double slope = 0.25 * (probability - (i == targets[row]));
      ASSERT_NEAR(double{gradient[row * width + i]}, slope, 24 * epsilon) << row << "," << i;
    }
  }
  EXPECT_NEAR(loss, expected, rows * 24 * epsilon);
}

/// Softmax attention of one query, by the definition.
std::vector<double> attend(const std::vector<float>& qkv, const Attention& layer, int sequence,
                           int head, int query) {
  const int width = layer.width, size = layer.head_width(), column = head * size;
  const auto at = [&](int row, int part, int i) {
    return double{qkv[(sequence * layer.length + row) * 3 * width + part * width + column + i]};
  };
  std::vector<double> weights(query + 1);
  double total = 0;
  for (int key = 0; key <= query; ++key) {
    double score = 0;
    for (int i = 0; i < size; ++i) {
      score += at(query, 0, i) * at(key, 1, i);
    }
    weights[key] = std::exp(score / std::sqrt(size));
    total += weights[key];
  }
  std::vector<double> out(size, 0.0);
  for (int key = 0; key <= query; ++key) {
    for (int i = 0; i < size; ++i) {
      out[i] += weights[key] / total * at(key, 2, i);
    }
  }
  return out;
}

TEST(Layers, attention_looks_at_its_own_head_and_never_ahead) {
  const auto backend = gemm_backend();
  for (const int length : {1, 16, 63, 64, 65, 130}) {
    const Attention layer{.gemm = *backend, .batch = 2, .length = length, .heads = 2, .width = 16};
    const auto qkv = normals(std::size_t{2} * length * 3 * 16, "qkv");
    // What attention does not write, it must not read.
    std::vector<float> weights(layer.weight_count(), std::numeric_limits<float>::quiet_NaN());
    std::vector<float> out(std::size_t{2} * length * 16);
    attention_forward(layer, qkv.data(), weights.data(), out.data());
    for (int sequence = 0; sequence < 2; ++sequence) {
      for (int head = 0; head < 2; ++head) {
        for (int query = 0; query < length; ++query) {
          const auto expected = attend(qkv, layer, sequence, head, query);
          for (int i = 0; i < 8; ++i) {
            const float got = out[(sequence * length + query) * 16 + head * 8 + i];
            // Scores reach about 16, weights sum to 1, values reach about 4.
            ASSERT_NEAR(double{got}, expected[i], (16 * 8 + length) * epsilon * 4)
                << "length " << length << " query " << query;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace sprat::train
