// AdamW: against a scalar reference, and the same bits wherever ranges begin and end.
#include "fsdp/optimizers/adamw.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace sprat::fsdp {
namespace {

struct State {
  std::vector<float> parameters, first, second, gradients;
  explicit State(std::size_t count, unsigned seed = 1)
      : parameters(count), first(count), second(count), gradients(count) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < count; ++i) {
      parameters[i] = normal(random);
      gradients[i] = normal(random);
    }
  }
  AdamWElements part(std::size_t offset, std::size_t count) {
    return {.parameters = std::span(parameters).subspan(offset, count),
            .first_moments = std::span(first).subspan(offset, count),
            .second_moments = std::span(second).subspan(offset, count),
            .gradients = std::span(gradients).subspan(offset, count)};
  }
};

const AdamWOptions options{.beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .weight_decay = 0.1f};

TEST(AdamW, bits_do_not_depend_on_where_ranges_begin) {
  constexpr std::size_t count = 1000;
  for (const std::size_t piece : {1u, 3u, 7u, 64u, 129u, 999u}) {
    State whole(count), pieces(count);
    AdamWSchedule schedule(options);
    for (int step = 0; step < 3; ++step) {
      const AdamWStep numbers = schedule.next(0.01f, 0.37);
      update(numbers, true, whole.part(0, count));
      for (std::size_t offset = 0; offset < count; offset += piece) {
        update(numbers, true, pieces.part(offset, std::min(piece, count - offset)));
      }
    }
    EXPECT_EQ(whole.parameters, pieces.parameters) << "pieces of " << piece;
    EXPECT_EQ(whole.first, pieces.first) << "pieces of " << piece;
    EXPECT_EQ(whole.second, pieces.second) << "pieces of " << piece;
  }
}

TEST(AdamW, follows_the_formula_in_double) {
  constexpr std::size_t count = 256;
  constexpr int steps = 5;
  constexpr float rate = 0.01f;
  for (const bool decay : {false, true}) {
    State state(count);
    const std::vector<float> start = state.parameters;
    AdamWSchedule schedule(options);
    for (int step = 0; step < steps; ++step) {
      update(schedule.next(rate, 0.5), decay, state.part(0, count));
    }
    for (std::size_t i = 0; i < count; ++i) {
      double p = double{start[i]}, m = 0, v = 0;
      const double g = double{state.gradients[i]} * 0.5;
      const double b1 = double{options.beta1}, b2 = double{options.beta2};
      for (int step = 1; step <= steps; ++step) {
        p -= decay ? double{rate} * double{options.weight_decay} * p : 0.0;
        m = b1 * m + (1 - b1) * g;
        v = b2 * v + (1 - b2) * g * g;
        const double root = std::sqrt(v / (1 - std::pow(b2, step))) + double{options.epsilon};
        p -= double{rate} * (m / (1 - std::pow(b1, step))) / root;
      }
      // Each step rounds the parameter a few times at its size, and an update of at most
      // `rate` with a relative error of some roundings of its operands.
      const double bound = steps * 0x1p-24 * (4 * std::max(1.0, std::abs(p)) + 32 * double{rate});
      EXPECT_NEAR(double{state.parameters[i]}, p, bound) << "element " << i << ", decay " << decay;
    }
  }
}

TEST(AdamW, zero_stays_zero) {
  State state(128);
  std::fill(state.parameters.begin(), state.parameters.end(), 0.0f);
  std::fill(state.gradients.begin(), state.gradients.end(), 0.0f);
  AdamWSchedule schedule(options);
  for (int step = 0; step < 3; ++step) {
    update(schedule.next(1.0f, 1.0), true, state.part(0, 128));
  }
  EXPECT_EQ(state.parameters, std::vector<float>(128, 0.0f));
}

TEST(AdamW, decay_shrinks_by_rate_times_decay) {
  State state(64);
  const std::vector<float> start = state.parameters;
  std::fill(state.gradients.begin(), state.gradients.end(), 0.0f);
  AdamWSchedule schedule(options);
  const AdamWStep numbers = schedule.next(0.5f, 1.0);
  update(numbers, false, state.part(0, 32));
  update(numbers, true, state.part(32, 32));
  const float kept = static_cast<float>(1 - 0.5 * double{options.weight_decay});
  for (std::size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(state.parameters[i], i < 32 ? start[i] : start[i] * kept) << "element " << i;
  }
}

}  // namespace
}  // namespace sprat::fsdp
