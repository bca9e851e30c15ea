// Every optimizer of the table: against its formula, and what all of them promise.
#include "fsdp/optimizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "collectives/kernels/reduce.hpp"
#include "sprat/error.hpp"
#include "tests/unit/fsdp/tracked.hpp"

namespace sprat::fsdp {
namespace {

using testing::HasSubstr;
using ReferenceState = std::map<std::string, double>;

/// Elements with the state of one optimizer.
struct StepState {
  StepState(const OptimizerKind& kind, std::size_t count, unsigned seed = 1)
      : parameters(count),
        gradients(count),
        states(kind.states.size(), std::vector<float>(count, 0.0f)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < count; ++i) {
      parameters[i] = normal(random);
      gradients[i] = normal(random);
    }
  }
  void update(const Optimizer& optimizer, bool decay, std::size_t offset, std::size_t count) {
    std::vector<std::span<float>> parts;
    for (auto& state : states) {
      parts.push_back(std::span(state).subspan(offset, count));
    }
    optimizer.update(decay, {.parameters = std::span(parameters).subspan(offset, count),
                             .gradients = std::span(gradients).subspan(offset, count),
                             .states = parts});
  }
  bool operator==(const StepState&) const = default;

  std::vector<float> parameters, gradients;
  std::vector<std::vector<float>> states;
};

/// An element's parameter and states, as the formulas move them.
struct Element {
  Tracked parameter;
  std::vector<Tracked> states;
};
struct Step {
  int number;
  Tracked rate, gradient;  // the gradient scaled
  bool decay;
};

Tracked one() { return Tracked::exact(1); }
Tracked power(Tracked base, int exponent) {
  Tracked result = one();
  for (int i = 0; i < exponent; ++i) {
    result = result * base;
  }
  return result;
}

void adamw(const ReferenceState& values, const Step& step, Element& e) {
  const auto beta1 = Tracked::rounded(values.at("beta1"));
  const auto beta2 = Tracked::rounded(values.at("beta2"));
  const auto decay = Tracked::rounded(step.decay ? values.at("weight_decay") : 0.0);
  Tracked &m = e.states[0], &v = e.states[1];
  e.parameter = e.parameter * (one() - step.rate * decay);
  m = beta1 * m + (one() - beta1) * step.gradient;
  v = beta2 * v + (one() - beta2) * step.gradient * step.gradient;
  const auto root = sqrt(v) * (one() / sqrt(one() - power(beta2, step.number)));
  const auto size = step.rate / (one() - power(beta1, step.number));
  e.parameter = e.parameter - size * (m / (root + Tracked::rounded(values.at("epsilon"))));
}

void lion(const ReferenceState& values, const Step& step, Element& e) {
  const auto beta1 = Tracked::rounded(values.at("beta1"));
  const auto beta2 = Tracked::rounded(values.at("beta2"));
  const auto decay = Tracked::rounded(step.decay ? values.at("weight_decay") : 0.0);
  Tracked& m = e.states[0];
  const auto direction = sign(beta1 * m + (one() - beta1) * step.gradient);
  e.parameter = e.parameter * (one() - step.rate * decay) - step.rate * direction;
  m = beta2 * m + (one() - beta2) * step.gradient;
}

void sgd(const ReferenceState& values, const Step& step, Element& e) {
  const auto momentum = Tracked::rounded(values.at("momentum"));
  const auto decay = Tracked::rounded(step.decay ? values.at("weight_decay") : 0.0);
  const auto gradient = step.gradient + decay * e.parameter;
  Tracked& buffer = e.states[0];
  buffer = momentum * buffer + gradient;
  e.parameter = e.parameter -
                step.rate * (values.at("nesterov") != 0 ? gradient + momentum * buffer : buffer);
}

struct Formula {
  const char* name;
  ReferenceState values;
  void (*move)(const ReferenceState&, const Step&, Element&);
};
// Every optimizer in every form that it has.
const std::vector<Formula> formulas = {
    {"adamw", {{"beta1", 0.9}, {"beta2", 0.95}, {"epsilon", 1e-8}, {"weight_decay", 0.1}}, adamw},
    {"adamw", {{"beta1", 0}, {"beta2", 0.999}, {"epsilon", 1e-3}, {"weight_decay", 0}}, adamw},
    {"lion", {{"beta1", 0.9}, {"beta2", 0.99}, {"weight_decay", 1}}, lion},
    {"sgd", {{"momentum", 0.9}, {"nesterov", 0}, {"weight_decay", 0}}, sgd},
    {"sgd", {{"momentum", 0.9}, {"nesterov", 1}, {"weight_decay", 0.01}}, sgd},
    {"sgd", {{"momentum", 0}, {"nesterov", 0}, {"weight_decay", 0.01}}, sgd},
};

TEST(Optimizers, each_has_a_formula_here) {
  for (const OptimizerKind* kind : all_optimizers()) {
    EXPECT_TRUE(std::ranges::any_of(formulas, [&](const Formula& formula) {
      return std::string(formula.name) == kind->name;
    })) << kind->name;
  }
}

TEST(Optimizers, follow_their_formulas) {
  constexpr std::size_t count = 257;
  constexpr float rate = 0.01f;
  constexpr double scale = 0.37;
  for (const Formula& formula : formulas) {
    const OptimizerKind& kind = optimizer_named(formula.name);
    for (const bool decay : {false, true}) {
      const auto optimizer = make_optimizer({formula.name, formula.values});
      StepState state(kind, count);
      std::vector<Element> elements(count);
      for (std::size_t i = 0; i < count; ++i) {
        elements[i] = {Tracked::exact(double{state.parameters[i]}),
                       std::vector<Tracked>(kind.states.size())};
      }
      for (int step = 1; step <= 5; ++step) {
        state.gradients = StepState(kind, count, static_cast<unsigned>(step)).gradients;
        optimizer->begin_step(step, rate, scale);
        state.update(*optimizer, decay, 0, count);
        for (std::size_t i = 0; i < count; ++i) {
          const auto gradient =
              Tracked::exact(double{state.gradients[i]}) * Tracked::rounded(scale);
          formula.move(formula.values, {step, Tracked::exact(double{rate}), gradient, decay},
                       elements[i]);
        }
      }
      for (std::size_t i = 0; i < count; ++i) {
        const auto& [parameter, states] = elements[i];
        EXPECT_NEAR(double{state.parameters[i]}, parameter.value, parameter.error)
            << formula.name << ", element " << i << ", decay " << decay;
        for (std::size_t s = 0; s < states.size(); ++s) {
          EXPECT_NEAR(double{state.states[s][i]}, states[s].value, states[s].error)
              << formula.name << ", " << kind.states[s] << " of element " << i;
        }
      }
    }
  }
}

// Parameters after 4 steps from (0.5, -1.25, 0, 3) with the gradients below, each step's times its
// number, as torch 2.11's AdamW(lr=0.125, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1) and
// SGD(lr=0.125, momentum=0.9, nesterov=..., weight_decay=0.01) have them in f64.
TEST(Optimizers, agree_with_torch) {
  const struct {
    const char* name;
    ReferenceState values;
    std::vector<double> expected;
  } cases[] = {
      {"adamw", {}, {0.004126973761028496, -0.7173242475847648, 0.0, 2.381451611792867}},
      {"sgd",
       {{"momentum", 0.9}, {"weight_decay", 0.01}},
       {-0.08484715589477537, 3.3977306994598386, 0.0, 2.948030966091995}},
      {"sgd",
       {{"momentum", 0.9}, {"weight_decay", 0.01}, {"nesterov", 1}},
       {-0.3400123286157263, 5.428500560824194, 0.0, 2.928606256734119}},
  };
  const std::vector<float> gradients = {0.25f, -2.0f, 0.0f, 0.0078125f};
  for (const auto& [name, values, expected] : cases) {
    const OptimizerKind& kind = optimizer_named(name);
    const auto optimizer = make_optimizer({name, values});
    StepState state(kind, 4);
    state.parameters = {0.5f, -1.25f, 0.0f, 3.0f};
    for (int step = 1; step <= 4; ++step) {
      for (std::size_t i = 0; i < 4; ++i) {
        state.gradients[i] = gradients[i] * static_cast<float>(step);
      }
      optimizer->begin_step(step, 0.125f, 1.0);
      state.update(*optimizer, true, 0, 4);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      // Four steps of at most 16 roundings, no operand above 32: 0.125 times the largest buffer is.
      EXPECT_NEAR(double{state.parameters[i]}, expected[i], 4 * 16 * 0x1p-24 * 32)
          << name << ", element " << i;
    }
  }
}

TEST(Optimizers, bits_do_not_depend_on_where_ranges_begin) {
  constexpr std::size_t count = 1000;
  for (const OptimizerKind* kind : all_optimizers()) {
    const auto optimizer = make_optimizer({kind->name, {}});
    for (const std::size_t piece : {1u, 3u, 7u, 64u, 129u, 999u}) {
      StepState whole(*kind, count), pieces(*kind, count);
      for (int step = 1; step <= 3; ++step) {
        optimizer->begin_step(step, 0.01f, 0.37);
        whole.update(*optimizer, true, 0, count);
        for (std::size_t offset = 0; offset < count; offset += piece) {
          pieces.update(*optimizer, true, offset, std::min(piece, count - offset));
        }
      }
      EXPECT_EQ(whole, pieces) << kind->name << " in pieces of " << piece;
    }
  }
}

TEST(Optimizers, bits_do_not_depend_on_the_instruction_set) {
  constexpr std::size_t count = 1003;
  for (const OptimizerKind* kind : all_optimizers()) {
    std::vector<StepState> results;
    for (const std::string& target : collectives::reduce_targets()) {
      ASSERT_TRUE(collectives::use_reduce_target(target));
      const auto optimizer = make_optimizer({kind->name, {}});
      StepState& state = results.emplace_back(*kind, count);
      for (int step = 1; step <= 3; ++step) {
        optimizer->begin_step(step, 0.01f, 0.37);
        state.update(*optimizer, true, 0, count);
      }
      EXPECT_EQ(state, results.front()) << kind->name << " by " << target;
    }
    collectives::use_reduce_target("");
  }
}

TEST(Optimizers, go_on_from_any_step_with_the_same_bits) {
  constexpr std::size_t count = 64;
  for (const OptimizerKind* kind : all_optimizers()) {
    const auto first = make_optimizer({kind->name, {}});
    StepState went_on(*kind, count);
    for (int step = 1; step <= 20; ++step) {
      first->begin_step(step, 0.01f, 0.37);
      went_on.update(*first, true, 0, count);
    }
    StepState resumed = went_on;
    const auto second = make_optimizer({kind->name, {}});
    second->begin_step(50, 0.01f, 1.0);  // a jump ahead, then one back
    second->begin_step(21, 0.01f, 0.37);
    resumed.update(*second, true, 0, count);
    first->begin_step(21, 0.01f, 0.37);
    went_on.update(*first, true, 0, count);
    EXPECT_EQ(went_on, resumed) << kind->name;
  }
}

TEST(Optimizers, zero_stays_zero) {
  for (const OptimizerKind* kind : all_optimizers()) {
    const auto optimizer = make_optimizer({kind->name, {}});
    StepState state(*kind, 128);
    std::ranges::fill(state.parameters, 0.0f);
    std::ranges::fill(state.gradients, 0.0f);
    const StepState before = state;
    for (int step = 1; step <= 3; ++step) {
      optimizer->begin_step(step, 1.0f, 1.0);
      state.update(*optimizer, true, 0, 128);
    }
    EXPECT_EQ(state, before) << kind->name;
  }
}

TEST(Optimizers, decay_shrinks_by_rate_times_decay) {
  for (const OptimizerKind* kind : all_optimizers()) {
    const auto optimizer = make_optimizer({kind->name, {{"weight_decay", 0.25}}});
    StepState state(*kind, 64);
    std::ranges::fill(state.gradients, 0.0f);
    const std::vector<float> start = state.parameters;
    optimizer->begin_step(1, 0.5f, 1.0);
    state.update(*optimizer, false, 0, 32);
    state.update(*optimizer, true, 32, 32);
    for (std::size_t i = 0; i < 64; ++i) {
      EXPECT_EQ(state.parameters[i], i < 32 ? start[i] : start[i] * 0.875f)
          << kind->name << ", element " << i;
    }
  }
}

std::string refusal(const OptimizerOptions& options) {
  try {
    make_optimizer(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "accepted";
}

TEST(Optimizers, refuse_what_they_do_not_know) {
  const struct {
    OptimizerOptions options;
    const char* said;
  } cases[] = {
      {{"adam", {}}, "there is no optimizer \"adam\"; there are: adamw, lion, sgd"},
      {{"sgd", {{"beta1", 0.9}}},
       "optimizer sgd has no hyperparameter \"beta1\"; it has: momentum, nesterov, weight_decay"},
      {{"adamw", {{"beta1", 1}}},
       "hyperparameter beta1 of optimizer adamw is 1; it is at least 0 and below 1"},
      {{"adamw", {{"beta2", 0.99999999}}}, "and below 1, in f32"},
      {{"lion", {{"weight_decay", -1}}}, "weight_decay of optimizer lion is -1"},
      {{"lion", {{"beta2", std::nan("")}}}, "beta2 of optimizer lion is nan"},
      {{"sgd", {{"nesterov", 0.5}}}, "nesterov of optimizer sgd is 0.5; it is 0 or 1"},
      {{"sgd", {{"nesterov", 1}, {"momentum", 0}}}, "give it a momentum"},
  };
  for (const auto& [options, said] : cases) {
    EXPECT_THAT(refusal(options), HasSubstr(said));
  }
}

TEST(Optimizers, standard_values_are_in_range) {
  for (const OptimizerKind* kind : all_optimizers()) {
    for (const Hyperparameter& row : kind->hyperparameters) {
      EXPECT_EQ(refusal({kind->name, {{row.name, row.standard}}}), "accepted") << row.name;
      EXPECT_NE(refusal({kind->name, {{row.name, row.below}}}), "accepted") << row.name;
    }
  }
}

}  // namespace
}  // namespace sprat::fsdp
