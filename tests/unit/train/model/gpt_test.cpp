// The GPT: its gradient is that of its loss, and its passes do not depend on how rows are grouped.
#include "train/model/gpt.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "tests/unit/train/model/played_stages.hpp"
#include "train/model/gpt_index.hpp"
#include "train/model/gpt_stages.hpp"
#include "train/model/random.hpp"

namespace sprat::train {
namespace {

constexpr GptShape tiny{.layers = 2, .width = 16, .heads = 2, .context = 8};
constexpr int batch = 3;

class Gradient : public testing::Test {
 protected:
  Gradient()
      : units_(gpt_units(tiny, 5)),
        parameters_(units_),
        gpt_(tiny, {.max_tokens = batch * tiny.context}, stages_gemm(), parameters_),
        inputs_(some_tokens(batch * tiny.context, tiny.vocabulary, "inputs")),
        targets_(some_tokens(batch * tiny.context, tiny.vocabulary, "targets")) {
    enlarge(parameters_, units_);
  }

  /// The sum over tokens.
  double evaluate(std::span<const std::int32_t> inputs, std::span<const std::int32_t> targets) {
    const MicroBatch one{.length = tiny.context, .tokens = inputs, .targets = targets};
    gpt_.begin_evaluation(std::span(&one, 1));
    gpt_.forward(0, 0, {}, {});
    return gpt_.losses()[0];
  }
  double mean_loss() { return mean_of(evaluate(inputs_, targets_)); }
  /// Adds the gradients of scale times the sum over tokens.
  double add_gradients(GptStages& gpt, float scale) const {
    const MicroBatch one{.length = tiny.context, .tokens = inputs_, .targets = targets_};
    gpt.begin_step(std::span(&one, 1), scale);
    gpt.forward(0, 0, {}, {});
    gpt.backward(0, 0, {}, {});
    return gpt.losses()[0];
  }
  /// With those of the unit that is tied to it.
  std::vector<float> gradient(int unit, int index) {
    const auto own = parameters_.gradients(unit, index, 0);
    std::vector<float> sum(own.begin(), own.end());
    for (std::size_t other = 0; other < units_.size(); ++other) {
      const auto tied = parameters_.gradients(static_cast<int>(other), 0, 0);
      for (std::size_t i = 0; units_[other].tied_to == unit && i < sum.size(); ++i) {
        sum[i] += tied[i];
      }
    }
    return sum;
  }
  float tokens() const { return static_cast<float>(inputs_.size()); }
  double mean_of(double sum) const { return sum / static_cast<double>(inputs_.size()); }
  /// Slope of the loss along `direction` from this parameter's values, by a central difference.
  double slope(std::span<float> values, const std::vector<float>& direction, float step) {
    const std::vector<float> home(values.begin(), values.end());
    const auto at = [&](float distance) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = home[i] + distance * direction[i];
      }
      return mean_loss();
    };
    const double difference = at(step) - at(-step);
    std::copy(home.begin(), home.end(), values.begin());
    return difference / (2 * double{step});
  }

  std::vector<UnitSpec> units_;
  WholeParameters parameters_;
  GptStages gpt_;
  std::vector<std::int32_t> inputs_, targets_;
};

TEST_F(Gradient, of_every_parameter_is_the_slope_of_the_loss) {
  const double loss = mean_of(add_gradients(gpt_, 1.0f / tokens()));
  for (std::size_t unit = 0; unit < units_.size() && units_[unit].tied_to < 0; ++unit) {
    for (std::size_t index = 0; index < units_[unit].parameters.size(); ++index) {
      const std::string& name = units_[unit].parameters[index].name;
      const int u = static_cast<int>(unit), k = static_cast<int>(index);
      const std::vector<float> gradient = this->gradient(u, k);
      auto values = parameters_.writable_values(u, k);
      // Along the gradient itself and along a random direction, both of length 1.
      double norm = 0, random_norm = 0;
      const RandomStream stream(11, name);
      for (std::size_t i = 0; i < values.size(); ++i) {
        norm += double{gradient[i]} * double{gradient[i]};
        random_norm += std::pow(stream.normal(i), 2);
      }
      ASSERT_GT(norm, 0.0) << name;
      for (const bool random : {false, true}) {
        std::vector<float> direction(values.size());
        double expected = 0;
        for (std::size_t i = 0; i < values.size(); ++i) {
          const double one = random ? stream.normal(i) / std::sqrt(random_norm)
                                    : double{gradient[i]} / std::sqrt(norm);
          direction[i] = static_cast<float>(one);
          expected += double{gradient[i]} * double{direction[i]};
        }
        constexpr float step = 0.02f;
        const double coarse = slope(values, direction, 2 * step),
                     fine = slope(values, direction, step);
        // The central difference errs by c step^2, and (coarse - fine) / 3 estimates that;
        // Richardson's extrapolation removes it and leaves at most as much again. The loss has
        // some 100 roundings that matter, spread over the rows' mean; and the gradient its own.
        const double epsilon = std::numeric_limits<float>::epsilon();
        const double truncation = std::abs(coarse - fine) / 3;
        const double rounding =
            16 * epsilon * loss / double{step} + 200 * epsilon * std::sqrt(norm);
        EXPECT_NEAR(fine + (fine - coarse) / 3, expected, 0.3 * truncation + rounding)
            << name << (random ? " random" : " steepest") << " loss " << loss;
      }
    }
  }
}

TEST_F(Gradient, adds_up_over_calls) {
  add_gradients(gpt_, 1.0f / tokens());
  const auto once = parameters_.gradients(block_unit(0), down_weight, 0);
  const std::vector<float> first(once.begin(), once.end());
  add_gradients(gpt_, 1.0f / tokens());
  for (std::size_t i = 0; i < first.size(); ++i) {
    const double bound = 64 * double{std::numeric_limits<float>::epsilon()};
    ASSERT_NEAR(double{once[i]}, 2 * double{first[i]}, bound) << i;
  }
}

TEST_F(Gradient, is_multiplied_by_the_scale) {
  WholeParameters scaled = parameters_;
  GptStages other(tiny, {.max_tokens = batch * tiny.context}, stages_gemm(), scaled);
  EXPECT_EQ(add_gradients(gpt_, 1.0f), add_gradients(other, 1024.0f));
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    for (std::size_t index = 0; index < units_[unit].parameters.size(); ++index) {
      const int u = static_cast<int>(unit), k = static_cast<int>(index);
      const auto once = parameters_.gradients(u, k, 0), often = scaled.gradients(u, k, 0);
      for (std::size_t i = 0; i < once.size(); ++i) {
        ASSERT_EQ(often[i], 1024.0f * once[i]) << units_[unit].parameters[index].name;
      }
    }
  }
}

TEST_F(Gradient, of_nothing_is_nothing) { EXPECT_EQ(evaluate({}, {}), 0.0); }

TEST_F(Gradient, loss_is_that_of_the_sequences_one_by_one) {
  double one_by_one = 0;
  for (int sequence = 0; sequence < batch; ++sequence) {
    const std::size_t begin = static_cast<std::size_t>(sequence) * tiny.context;
    one_by_one += evaluate(std::span(inputs_).subspan(begin, tiny.context),
                           std::span(targets_).subspan(begin, tiny.context));
  }
  const double all = mean_loss() * static_cast<double>(inputs_.size());
  EXPECT_NEAR(all, one_by_one, 100 * double{std::numeric_limits<float>::epsilon()} * all);
}

TEST_F(Gradient, prediction_agrees_with_the_loss_of_the_last_token) {
  for (const std::size_t length : {std::size_t{1}, std::size_t{5}, std::size_t{8}}) {
    const auto prefix = std::span(inputs_).first(length);
    // Another target at the last token of the prefix changes the loss by the logits' difference.
    auto targets = std::vector(targets_.begin(), targets_.begin() + tiny.context);
    const auto inputs = std::span(inputs_).first(tiny.context);
    const double with = evaluate(inputs, targets);
    const std::int32_t other = (targets[length - 1] + 1) % tiny.vocabulary;
    const auto logits = gpt_.predict(prefix);
    const double difference = double{logits[other]} - double{logits[targets[length - 1]]};
    targets[length - 1] = other;
    const double without = evaluate(inputs, targets);
    EXPECT_NEAR(with - without, difference, 1000 * double{std::numeric_limits<float>::epsilon()});
  }
}

TEST(GptUnits, name_every_parameter_once_and_depend_on_the_seed) {
  std::set<std::string> names;
  std::size_t count = 0;
  for (const UnitSpec& unit : gpt_units(tiny, 1)) {
    if (unit.tied_to >= 0) {
      continue;
    }
    for (const ParameterSpec& parameter : unit.parameters) {
      names.insert(parameter.name);
      ++count;
    }
  }
  EXPECT_EQ(names.size(), count);
  const auto one = gpt_units(tiny, 1), same = gpt_units(tiny, 1), other = gpt_units(tiny, 2);
  EXPECT_EQ(one[0].parameters[0].initial(42), same[0].parameters[0].initial(42));
  EXPECT_NE(one[0].parameters[0].initial(42), other[0].parameters[0].initial(42));
  EXPECT_NE(one[0].parameters[0].initial(42), one[1].parameters[0].initial(42));
}

TEST(GptUnits, weights_have_gpt_2s_deviation) {
  const GptShape shape{.layers = 8, .width = 128, .heads = 4, .context = 64};
  const auto units = gpt_units(shape, 1);
  const auto deviation = [&](int unit, int index, std::uint64_t count) {
    double squares = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      squares += std::pow(double{units[unit].parameters[index].initial(i)}, 2);
    }
    return std::sqrt(squares / static_cast<double>(count));
  };
  constexpr std::uint64_t count = 16'384;
  const double five_sigma = 5 / std::sqrt(2.0 * count);  // relative, of a sample deviation
  EXPECT_NEAR(deviation(table_unit, table_values, count) / 0.02, 1, five_sigma);
  EXPECT_NEAR(deviation(block_unit(3), up_weight, count) / 0.02, 1, five_sigma);
  EXPECT_NEAR(deviation(block_unit(3), down_weight, count) / (0.02 / 4), 1, five_sigma);
}

TEST(GptUnits, of_ranks_are_those_of_their_stages_with_their_places_in_the_model) {
  const std::vector<int> first_layer = {0, 2};
  const auto ids_of = [&](std::vector<int> stages) {
    std::vector<std::uint64_t> ids;
    for (const UnitSpec& unit : gpt_units(tiny, 1, {first_layer, std::move(stages)})) {
      ids.push_back(unit.id.value());
    }
    return ids;
  };
  EXPECT_EQ(ids_of({0}), (std::vector<std::uint64_t>{0, 1, 2}));
  EXPECT_EQ(ids_of({1}), (std::vector<std::uint64_t>{3, 4, 0})) << "the head copies the table";
  EXPECT_EQ(ids_of({0, 1}), (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5}));
}

TEST(GptUnits, tie_the_head_to_the_table_where_that_is) {
  const auto whole = gpt_units(tiny, 1);
  EXPECT_EQ(whole.back().tied_to, table_unit);
  EXPECT_FALSE(whole.back().parameters[0].tied);
  const auto last = gpt_units(tiny, 1, {.first_layer = {0, 2}, .stages = {1}});
  EXPECT_EQ(last.back().tied_to, -1);
  EXPECT_TRUE(last.back().parameters[0].tied);
  EXPECT_EQ(last.back().parameters[0].name, whole[0].parameters[0].name);
  EXPECT_EQ(last.back().parameters[0].initial(42), whole[0].parameters[0].initial(42));
}

}  // namespace
}  // namespace sprat::train
