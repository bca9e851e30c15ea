// Stages whose results are known without a pipeline: whole numbers below 2^20, which floats hold
// exactly, and lengths that depend on run, stage and micro-batch.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "comm/base/hash.hpp"
#include "mp/schedule.hpp"

namespace sprat::mp {

/// What its stages give, each number made of all that the stage was given.
class KnownModel {
 public:
  KnownModel(int stages_, std::size_t most_ = 24) : stages(stages_), most(most_) {}

  int stages;
  std::size_t most;

  std::size_t length(int run, int stage, int microbatch) const {
    if (stage + 1 == stages) {
      return 0;
    }
    const std::uint64_t seed =
        golden_step * std::uint64_t(1 + run * 1009 + stage * 31 + microbatch);
    return mix_bits(seed) % (most + 1);
  }
  static float value(std::uint64_t a, std::uint64_t b, std::size_t i) {
    return float(mix_bits(a * golden_step + b * 7919 + i + 1) % (1 << 20));
  }
  static std::uint64_t sum(std::span<const float> values) {
    std::uint64_t total = 1;  // of nothing, too
    for (std::size_t i = 0; i < values.size(); ++i) {
      total += std::uint64_t(values[i]) * (i + 1);
    }
    return total;
  }

  /// What `stage` gives: a function of all that it was given.
  std::vector<float> output(int run, int stage, int microbatch) {
    std::vector<float> result(length(run, stage, microbatch));
    const std::uint64_t given =
        stage == 0 ? sum({})
                   : sum_of(output_sums_, run, stage - 1, microbatch, &KnownModel::output);
    for (std::size_t i = 0; i < result.size(); ++i) {
      result[i] = value(given, std::uint64_t(stage * 100 + microbatch), i);
    }
    return result;
  }
  /// The gradient of what `stage` gives.
  std::vector<float> gradient(int run, int stage, int microbatch) {
    std::vector<float> result(length(run, stage, microbatch));
    const std::uint64_t given = stage + 2 >= stages ? sum({})
                                                    : sum_of(gradient_sums_, run, stage + 1,
                                                             microbatch, &KnownModel::gradient);
    for (std::size_t i = 0; i < result.size(); ++i) {
      result[i] = value(given, std::uint64_t((stage + 1) * 100 + microbatch + 50), i);
    }
    return result;
  }

 private:
  using Sums = std::map<std::array<int, 3>, std::uint64_t>;

  std::uint64_t sum_of(Sums& sums, int run, int stage, int microbatch,
                       std::vector<float> (KnownModel::*values)(int, int, int)) {
    const auto [found, isnew] = sums.try_emplace({run, stage, microbatch}, 0);
    if (isnew) {
      found->second = sum((this->*values)(run, stage, microbatch));
    }
    return found->second;
  }

  Sums output_sums_, gradient_sums_;
};

/// One rank's, which notes what it is asked for and holds it against the model.
class KnownStages final : public PipelineStages {
 public:
  explicit KnownStages(KnownModel model) : model_(std::move(model)) {}

  int run = 0;
  std::vector<Action> calls;
  /// Called before each computation.
  std::function<void(const Action&)> before = [](const Action&) {};

  std::size_t most_elements(int stage) const override {
    return stage + 1 == model_.stages ? 0 : model_.most;
  }
  std::size_t forward(int stage, int j, std::span<const float> input,
                      std::span<float> output) override {
    note({.op = Op::forward, .stage = stage, .microbatch = j});
    EXPECT_EQ(std::vector<float>(input.begin(), input.end()),
              stage == 0 ? std::vector<float>() : model_.output(run, stage - 1, j))
        << "input of stage " << stage << ", micro-batch " << j << ", run " << run;
    EXPECT_EQ(output.size(), most_elements(stage));
    const std::size_t count = model_.length(run, stage, j);
    const std::uint64_t given = KnownModel::sum(input);
    for (std::size_t i = 0; i < output.size(); ++i) {
      // What lies behind the end is nobody's, and different each time.
      output[i] =
          i < count ? KnownModel::value(given, std::uint64_t(stage * 100 + j), i) : float(-run - 1);
    }
    return count;
  }
  void backward(int stage, int j, std::span<const float> given, std::span<float> result) override {
    note({.op = Op::backward, .stage = stage, .microbatch = j});
    gradient(stage, j, given, result);
  }
  void backward_input(int stage, int j, std::span<const float> given,
                      std::span<float> result) override {
    note({.op = Op::backward_input, .stage = stage, .microbatch = j});
    gradient(stage, j, given, result);
  }
  void backward_weight(int stage, int j) override {
    note({.op = Op::backward_weight, .stage = stage, .microbatch = j});
  }
  void recompute(int stage, int j) override {
    note({.op = Op::recompute, .stage = stage, .microbatch = j});
  }
  void store(int stage, int j) override {
    note({.op = Op::store, .stage = stage, .microbatch = j});
  }
  void load(int stage, int j) override { note({.op = Op::load, .stage = stage, .microbatch = j}); }
  void unshard(int stage) override { note({.op = Op::unshard, .stage = stage}); }
  void reshard(int stage) override { note({.op = Op::reshard, .stage = stage}); }
  void reduce(int stage) override { note({.op = Op::reduce, .stage = stage}); }

 private:
  void note(const Action& action) {
    before(action);
    calls.push_back(action);
  }
  void gradient(int stage, int j, std::span<const float> given, std::span<float> result) {
    EXPECT_EQ(std::vector<float>(given.begin(), given.end()), model_.gradient(run, stage, j))
        << "gradient of stage " << stage << ", micro-batch " << j << ", run " << run;
    EXPECT_EQ(result.size(), stage == 0 ? 0 : model_.length(run, stage - 1, j));
    for (std::size_t i = 0; i < result.size(); ++i) {
      result[i] = KnownModel::value(KnownModel::sum(given), std::uint64_t(stage * 100 + j + 50), i);
    }
  }

  KnownModel model_;
};

}  // namespace sprat::mp
