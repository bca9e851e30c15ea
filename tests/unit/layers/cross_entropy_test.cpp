// Softmax cross entropy within its roundings of double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "sprat/error.hpp"
#include "sprat/layers.hpp"
#include "tests/unit/layers/roundings.hpp"

namespace sprat::layers_test::cross_entropy {
namespace {

constexpr int rows = 7;

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

/// Row by row: log of the sum of exponentials, and how far the logits are apart.
struct ExactRow {
  ExactRow(const LossCase& one, int row) {
    const auto begin = one.logits.begin() + std::ptrdiff_t{row} * one.vocabulary;
    const auto [low, high] = std::minmax_element(begin, begin + one.vocabulary);
    range = double{*high} - double{*low};
    double total = 0;
    for (auto logit = begin; logit != begin + one.vocabulary; ++logit) {
      total += std::exp(double{*logit});
    }
    log_total = std::log(total);
  }
  double log_total = 0, range = 0;
};

TEST(LayerKernels, cross_entropy_is_minus_the_logarithm_of_the_targets_share) {
  for (const int vocabulary : {1, 2, 17, 1000}) {
    LossCase one(vocabulary);
    layers::cross_entropy_forward(one.layer(), one.logits.data(), one.kept());
    for (int row = 0; row < rows; ++row) {
      const ExactRow exact(one, row);
      // A rounding of a difference of `range` errs by as many of the exponential; the logarithm and
      // what is added to it are f64.
      const double roundings = exponential_roundings + exact.range + sum_roundings(vocabulary);
      const double logit = double{one.logits[row * vocabulary + one.targets[row]]};
      EXPECT_NEAR(one.loss[row], exact.log_total - logit, gamma(roundings)) << vocabulary;
      EXPECT_NEAR(double{one.highest[row]} - std::log(double{one.share[row]}), exact.log_total,
                  gamma(roundings + 1))
          << vocabulary;
    }
  }
}

TEST(LayerKernels, cross_entropy_backward_input_is_the_shares_less_one_at_the_target) {
  constexpr float scale = 0.37f;
  for (const int vocabulary : {1, 2, 17, 1000}) {
    LossCase one(vocabulary);
    std::vector<float> gradient = one.logits;
    layers::cross_entropy_forward(one.layer(), gradient.data(), one.kept());
    EXPECT_EQ(gradient, one.logits);
    layers::cross_entropy_backward_input(one.layer(), one.kept(), scale, gradient.data());
    for (int row = 0; row < rows; ++row) {
      const ExactRow exact(one, row);
      // A share has an exponential above and a sum of them below, a division and a product; then
      // come a difference and the scale.
      const double roundings =
          2 * (exponential_roundings + exact.range) + sum_roundings(vocabulary) + 2;
      for (int i = 0; i < vocabulary; ++i) {
        const double share = std::exp(double{one.logits[row * vocabulary + i]} - exact.log_total);
        const double slope = share - (i == one.targets[row] ? 1 : 0);
        ASSERT_NEAR(double{gradient[row * vocabulary + i]}, double{scale} * slope,
                    double{scale} * (gamma(roundings) * share + gamma(2) * std::abs(slope)))
            << vocabulary;
      }
    }
  }
}

TEST(LayerKernels, cross_entropy_of_logits_far_apart_is_their_distance) {
  const std::vector<float> logits = {-1e4f, 0.0f, 1e4f};
  for (const std::int32_t target : {0, 1, 2}) {
    const std::vector<std::int32_t> targets = {target};
    float highest = 0, share = 0;
    double loss = 0;
    const layers::CrossEntropyRows rows_of_one{.highest = &highest, .share = &share, .loss = &loss};
    std::vector<float> gradient = logits, expected = {0.0f, 0.0f, 1.0f};
    expected[target] -= 1.0f;
    const layers::CrossEntropy layer{.vocabulary = 3, .targets = targets};
    layers::cross_entropy_forward(layer, logits.data(), rows_of_one);
    layers::cross_entropy_backward_input(layer, rows_of_one, 1.0f, gradient.data());
    EXPECT_EQ(loss, 1e4 * (2 - target));
    EXPECT_EQ(gradient, expected) << target;
  }
}

TEST(LayerKernels, a_target_that_is_not_in_the_vocabulary_is_refused_before_anything_is_written) {
  const std::vector<float> before(8, 3.0f);
  for (const std::int32_t target : {-1, 4, 1 << 30}) {
    const std::vector<std::int32_t> targets = {0, target};
    const layers::CrossEntropy layer{.vocabulary = 4, .targets = targets};
    std::vector<float> logits = before, highest(2, 5.0f), share = highest;
    std::vector<double> loss(2, 5.0);
    const layers::CrossEntropyRows kept{
        .highest = highest.data(), .share = share.data(), .loss = loss.data()};
    EXPECT_THROW(layers::cross_entropy_forward(layer, logits.data(), kept), Error) << target;
    EXPECT_THROW(layers::cross_entropy_backward_input(layer, kept, 1, logits.data()), Error)
        << target;
    EXPECT_EQ(logits, before);
    EXPECT_EQ(highest, std::vector<float>(2, 5.0f));
    EXPECT_EQ(share, std::vector<float>(2, 5.0f));
    EXPECT_EQ(loss, std::vector<double>(2, 5.0));
  }
}

TEST(LayerKernels, cross_entropy_costs_by_logits_and_rows) {
  EXPECT_EQ(layers::cross_entropy_forward_cost(5, 3), (layers::Cost{4 * 15, 4 * 15 + 20 * 3}));
  EXPECT_EQ(layers::cross_entropy_backward_input_cost(5, 3),
            (layers::Cost{4 * 15, 8 * 15 + 12 * 3}));
  // Large ones do not wrap: a vocabulary of 128 Ki for 2^20 rows.
  EXPECT_EQ(layers::cross_entropy_forward_cost(1 << 17, 1 << 20).flops, std::uint64_t{4} << 37);
}

}  // namespace
}  // namespace sprat::layers_test::cross_entropy
