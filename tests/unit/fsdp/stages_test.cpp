// Models that are stages of one: the step in halves, one norm, and a weight that two stages have.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sprat/fsdp.hpp"
#include "tests/unit/comm/base/refused.hpp"
#include "tests/unit/fsdp/small_model.hpp"

namespace sprat::fsdp {
namespace {

TEST(StepInHalves, is_the_step) {
  for (FsdpOptions options : all_rows(4)) {
    options.persistence_threshold = 100;
    const Outcome whole = train({.ranks = 4, .options = options}, noisy);
    run_virtual_ranks(4, Config{}, [&](Communicator& world) {
      Engine model(world, small_units(), with_small_order(options));
      for (int step = 0; step < 3; ++step) {
        run_passes(model, world.rank(), step, noisy);
        model.finish_gradients();
        SquareSum squares;
        for (const SquareSum& of_unit : model.square_sums()) {
          squares += of_unit;
        }
        const double norm = std::sqrt(squares.value());
        EXPECT_EQ(model.apply(small_rate, norm, 0).grad_norm, whole.norms[step]);
      }
      EXPECT_TRUE(read_parameters(model) == whole.values) << row_name(options);
    });
  }
}

TEST(StepInHalves, squares_of_a_unit_depend_on_that_unit_alone) {
  for (const std::size_t threshold : {0, 100, 100000}) {
    std::map<std::string, SquareSum> truth;  // by unit
    for (const int ranks : {2, 4}) {
      for (FsdpOptions options : all_rows(ranks)) {
        for (const std::vector<int>& chosen : {std::vector{0, 1, 2}, {1}, {2, 0}}) {
          options.persistence_threshold = threshold;
          std::vector<UnitSpec> units;
          for (const int unit : chosen) {
            units.push_back(small_units()[static_cast<std::size_t>(unit)]);
          }
          run_virtual_ranks(ranks, Config{}, [&](Communicator& world) {
            ShardedModel model(world, units, options);
            for (const Visit& visit : plain_visits(std::vector{0, 1, 2}, std::vector{2, 1, 0}, 1)) {
              if (visit.unit >= static_cast<int>(units.size())) {
                continue;
              }
              model.acquire(visit.unit);
              model.release(visit.unit);
              if (visit.pass == VisitPass::forward) {
                continue;
              }
              const UnitSpec& unit = units[static_cast<std::size_t>(visit.unit)];
              for (int index = 0; index < std::ssize(unit.parameters); ++index) {
                // Of one rank alone: sums over any number of ranks are the same.
                const std::span<float> gradient = model.gradient(visit.unit, index);
                for (std::size_t i = 0; world.rank() == 0 && i < gradient.size(); ++i) {
                  gradient[i] = noise(key_of(unit.name.size(), unit.name.back(),
                                             static_cast<std::uint64_t>(index), i));
                }
              }
              model.reduce(visit.unit);
            }
            model.finish_gradients();
            const std::vector<SquareSum> squares = model.square_sums();
            if (world.rank() == 0) {
              for (std::size_t unit = 0; unit < units.size(); ++unit) {
                const SquareSum expected =
                    truth.emplace(units[unit].name, squares[unit]).first->second;
                EXPECT_EQ(squares[unit], expected)
                    << units[unit].name << ", " << row_name(options) << ", threshold " << threshold;
              }
            }
            model.apply(small_rate, 1, 0);
          });
        }
      }
    }
  }
}

TEST(StepInHalves, a_parameter_of_another_stage_counts_as_zero_beside_others) {
  for (const FsdpOptions& options : all_rows(4)) {
    for (std::size_t tied = 0; tied < small_shapes[1].size(); ++tied) {
      std::vector<UnitSpec> units = {small_units()[1]};
      units[0].parameters[tied].tied = true;
      run_virtual_ranks(4, Config{}, [&](Communicator& world) {
        const auto squares_with = [&](ShardedModel& model, float of_tied) {
          for (const VisitPass pass : {VisitPass::forward, VisitPass::backward}) {
            model.acquire(0);
            for (std::size_t index = 0; index < small_shapes[1].size(); ++index) {
              if (pass == VisitPass::backward) {
                std::ranges::fill(model.gradient(0, static_cast<int>(index)),
                                  index == tied ? of_tied : 0.3f);
              }
            }
            model.release(0);
          }
          model.reduce(0);
          model.finish_gradients();
          const std::vector<SquareSum> squares = model.square_sums();
          model.apply(small_rate, 1);
          return squares;
        };
        ShardedModel one(world, units, options), other(world, {small_units()[1]}, options);
        EXPECT_EQ(squares_with(one, 7.0f), squares_with(other, 0.0f))
            << row_name(options) << ", parameter " << tied;
      });
    }
  }
}

/// The embedding alone, two blocks, and the head: a model that can be cut before the second block.
std::vector<UnitSpec> model_of_four() {
  std::vector<UnitSpec> units = small_units();
  units[0].parameters.pop_back();
  units.push_back({.name = "head", .parameters = units[0].parameters, .tied_to = 0});
  return units;
}

struct StagePart {
  std::vector<UnitSpec> units;
  std::vector<int> in_whole;  ///< By unit: its number in the whole model.
  std::vector<Visit> visits;
};

constexpr int stage_microbatches = 3;

StagePart whole_model() {
  return {
      .units = model_of_four(),
      .in_whole = {0, 1, 2, 3},
      .visits = plain_visits(std::vector{0, 1, 2, 3}, std::vector{3, 2, 1, 0}, stage_microbatches)};
}

/// Of two: 1F1B, which lets the first be one forward ahead.
StagePart stage_of(int stage) {
  const std::vector<UnitSpec> whole = model_of_four();
  StagePart part;
  for (const int unit : stage == 0 ? std::vector{0, 1} : std::vector{2, 3}) {
    part.units.push_back(whole[static_cast<std::size_t>(unit)]);
    part.units.back().id = static_cast<std::uint64_t>(unit);
    part.in_whole.push_back(unit);
  }
  if (stage == 1) {
    part.units[1].tied_to = -1;
    part.units[1].id = 0;
    part.units[1].parameters[0].tied = true;
  }
  const int ahead = stage == 0 ? 1 : 0;
  for (int at = 0; at < stage_microbatches + ahead; ++at) {
    if (at < stage_microbatches) {
      part.visits.push_back({0, VisitPass::forward, at});
      part.visits.push_back({1, VisitPass::forward, at});
    }
    if (at >= ahead) {
      part.visits.push_back({1, VisitPass::backward, at - ahead});
      part.visits.push_back({0, VisitPass::backward, at - ahead});
    }
  }
  return part;
}

void run_visits(ShardedModel& model, const StagePart& part, int rank, int step) {
  for (const Visit& visit : part.visits) {
    model.acquire(visit.unit);
    const auto at = static_cast<std::size_t>(visit.unit);
    for (int index = 0;
         visit.pass == VisitPass::backward && index < std::ssize(part.units[at].parameters);
         ++index) {
      const ConstElements full = model.parameter_elements(visit.unit, index);
      std::vector<float> values(full.count);
      widen(full, values);
      const std::span<float> gradient = model.gradient(visit.unit, index);
      for (std::size_t i = 0; i < values.size(); ++i) {
        gradient[i] +=
            noisy({rank, step, visit.microbatch, part.in_whole[at], index, i, values[i]});
      }
    }
    model.release(visit.unit);
    if (visit.pass == VisitPass::backward) {
      model.reduce(visit.unit);
    }
  }
}

/// Bits of each parameter by name, read in an evaluation.
std::map<std::string, Values> named_values(ShardedModel& model, const StagePart& part) {
  std::map<std::string, Values> all;
  for (int unit = 0; unit < std::ssize(part.units); ++unit) {
    model.acquire(unit);
    const auto& specs = part.units[static_cast<std::size_t>(unit)].parameters;
    for (int index = 0; index < std::ssize(specs); ++index) {
      const ConstElements full = model.parameter_elements(unit, index);
      std::vector<float> values(full.count);
      widen(full, values);
      Values& bits = all[specs[static_cast<std::size_t>(index)].name];
      bits.clear();
      for (const float value : values) {
        bits.push_back(std::bit_cast<std::uint32_t>(value));
      }
    }
    model.release(unit);
  }
  return all;
}

/// Adds the other stage's gradient of the weight that both have, and gives the norm of the job.
double join_stages(Communicator& world, ShardedModel& model, int stage) {
  const std::span<float> mine = model.summed_gradient(stage == 0 ? 0 : 1);
  const int other = (world.rank() + 2) % 4;
  std::vector<float> its(mine.size());
  Work both =
      all_of({world.send(elements(std::as_const(mine)), other), world.recv(elements(its), other)});
  both.wait();
  for (std::size_t i = 0; i < its.size(); ++i) {
    mine[i] += its[i];
  }
  const std::vector<SquareSum> squares = model.square_sums();
  EXPECT_EQ(squares[1] == SquareSum(), stage == 1) << "a tied weight counts where it is from";
  std::array<SquareSum, 1> sum;
  for (const SquareSum& of_unit : squares) {
    if (world.rank() % 2 == 0) {  // both ranks of a stage have the same
      sum[0] += of_unit;
    }
  }
  world.all_reduce(words_of(sum)).wait();
  return std::sqrt(sum[0].value());
}

const std::vector<FsdpOptions> cut_options = {
    {.strategy = "zero3"},
    {.strategy = "ddp", .persistence_threshold = 100},
    {.strategy = "zero1", .parameter_dtype = DType::bf16, .stochastic_rounding = true},
    {.strategy = "zero3",
     .persistence_threshold = 100,
     .parameter_dtype = DType::bf16,
     .stochastic_rounding = true},
    {.strategy = "zero3",
     .persistence_threshold = 100000,
     .parameter_dtype = DType::f16,
     .stochastic_rounding = true},
};

/// Two models side by side on the halves of a world, each at its own pace.
TEST(Stages, of_a_model_have_the_bits_of_the_model) {
  for (FsdpOptions options : cut_options) {
    options.micro_steps = stage_microbatches;
    options.seed = 3;
    std::map<std::string, Values> truth;
    std::vector<double> norms;
    options.visits = whole_model().visits;
    run_virtual_ranks(2, Config{}, [&](Communicator& world) {
      const StagePart part = whole_model();
      ShardedModel model(world, part.units, options);
      for (int step = 0; step < 3; ++step) {
        run_visits(model, part, world.rank(), step);
        const double norm = model.step(small_rate).grad_norm;
        if (world.rank() == 0) {
          norms.push_back(norm);
        }
      }
      const auto values = named_values(model, part);
      if (world.rank() == 0) {
        truth = values;
      }
    });
    run_virtual_ranks(4, Config{}, [&](Communicator& world) {
      const int stage = world.rank() / 2;
      auto ranks = world.split(stage, world.rank());
      const StagePart part = stage_of(stage);
      FsdpOptions of_stage = options;
      of_stage.visits = part.visits;
      ShardedModel model(*ranks, part.units, of_stage);
      for (int step = 0; step < 3; ++step) {
        run_visits(model, part, ranks->rank(), step);
        model.finish_gradients();
        const double norm = join_stages(world, model, stage);
        EXPECT_EQ(model.apply(small_rate, norm).grad_norm, norms[static_cast<std::size_t>(step)])
            << row_name(options) << ", threshold " << options.persistence_threshold;
      }
      for (const auto& [name, values] : named_values(model, part)) {
        EXPECT_TRUE(values == truth.at(name))
            << name << ", " << row_name(options) << ", threshold " << options.persistence_threshold;
      }
    });
  }
}

TEST(StepInHalves, broken_contracts_are_refused_by_name) {
  run_virtual_ranks(1, Config{}, [](Communicator& world) {
    FsdpOptions options{.persistence_threshold = 100};
    options.visits = plain_visits(small_tied_forward, small_tied_backward, 1);
    ShardedModel model(world, small_tied_units(), options);
    EXPECT_EQ(message_of([&] { model.square_sums(); }), "square_sums() before finish_gradients()");
    EXPECT_EQ(message_of([&] { model.apply(0.1f, 1); }), "apply() before finish_gradients()");
    EXPECT_EQ(message_of([&] { model.summed_gradient(0); }),
              "summed_gradient(0) before finish_gradients()");
    EXPECT_EQ(message_of([&] { model.finish_gradients(); }),
              "step() before reduce() of unit \"embed\", which came 0 of 1 times");
    for (int unit = 0; unit < 4; ++unit) {
      model.reduce(unit);
    }
    model.finish_gradients();
    EXPECT_EQ(message_of([&] { model.finish_gradients(); }),
              "finish_gradients() came twice; apply() comes next");
    EXPECT_EQ(
        message_of([&] { model.summed_gradient(3); }),
        "summed_gradient(3) of unit \"head\", which is tied: its gradient is in that of unit 0");
    EXPECT_EQ(
        message_of([&] { model.summed_gradient(0); }),
        "summed_gradient(0) of unit \"embed\", whose gradient lies in two places: some of its "
        "parameters have fewer than the 100 elements of persistence_threshold; give it a unit "
        "of parameters of one kind");
    EXPECT_EQ(message_of([&] { model.apply(0.1f, 1, -1); }),
              "step() with a divisor of -1; it is above 0, or 0");
    model.apply(0.1f, 1);
  });
}

}  // namespace
}  // namespace sprat::fsdp
