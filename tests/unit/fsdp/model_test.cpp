// The sharded model: the same bits from every row of the table, and those of a scalar reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "fsdp/plan/placement.hpp"
#include "sprat/fsdp.hpp"
#include "tests/unit/comm/base/refused.hpp"
#include "tests/unit/fsdp/small_model.hpp"
#include "tests/unit/sanitized.hpp"

namespace sprat::fsdp {
namespace {

/// What may differ between runs that give the same bits on a row: everything but the row.
struct Setting {
  const char* name;
  std::function<void(FsdpOptions&)> apply;
};

const std::vector<Setting> settings = {
    {"f32", [](FsdpOptions&) {}},
    {"bf16 wire", [](FsdpOptions& o) { o.gradient_wire = DType::bf16; }},
    {"f16 wire", [](FsdpOptions& o) { o.gradient_wire = DType::f16; }},
    {"bf16 parameters and wire",
     [](FsdpOptions& o) { o.parameter_dtype = o.gradient_wire = DType::bf16; }},
    {"bf16 rounded by chance",
     [](FsdpOptions& o) {
       o.parameter_dtype = DType::bf16;
       o.stochastic_rounding = true;
       o.seed = 5;
     }},
    {"f16 with a loss scale",
     [](FsdpOptions& o) {
       o.parameter_dtype = o.gradient_wire = DType::f16;
       o.loss_scale.dynamic = true;
       o.loss_scale.initial = 16;
     }},
    {"four micro-steps added locally",
     [](FsdpOptions& o) {
       o.micro_steps = 4;
       o.accumulate = Accumulate::local;
     }},
    {"state in files",
     [](FsdpOptions& o) {
       o.state_tier = "file:" + testing::TempDir();
       o.parameter_dtype = DType::bf16;
     }},
    {"shards in files, of two micro-steps",
     [](FsdpOptions& o) {
       o.shard_tier = "file:" + testing::TempDir();
       o.micro_steps = 2;
       o.accumulate = Accumulate::local;
     }},
    {"everything in files",
     [](FsdpOptions& o) { o.state_tier = o.shard_tier = "file:" + testing::TempDir(); }},
    {"sgd", [](FsdpOptions& o) { o.optimizer.name = "sgd"; }},
    {"lion", [](FsdpOptions& o) { o.optimizer.name = "lion"; }},
};

TEST(ShardedModel, every_row_of_the_table_gives_the_same_bits) {
  for (const Setting& setting : settings) {
    for (const int ranks : {2, 8}) {
      std::optional<Outcome> truth;
      for (FsdpOptions options : part_if_sanitized(
               all_rows(ranks), 3, static_cast<std::size_t>(&setting - &settings[0]))) {
        setting.apply(options);
        const Outcome outcome = train({.ranks = ranks, .options = options}, noisy);
        if (!truth) {
          truth = outcome;
        }
        expect_same_bits(
            outcome, *truth,
            std::string(setting.name) + ", " + row_name(options) + " on " + std::to_string(ranks));
      }
    }
  }
}

TEST(ShardedModel, prefetching_budgets_and_evaluation_do_not_change_bits) {
  FsdpOptions plain{.strategy = "hsdp", .hybrid_shard_degree = 2, .prefetch_units = 0};
  for (const int micro_steps : {1, 3}) {
    plain.micro_steps = micro_steps;
    const Outcome truth = train({.ranks = 4, .options = plain}, noisy);
    for (const int prefetch : {0, 1, 2, 9}) {
      for (const std::size_t live : {std::size_t{1}, std::size_t{9000}, std::size_t{1} << 40}) {
        for (const int in_flight :
             part_if_sanitized<int>({1, 2, 3}, 3, static_cast<std::size_t>(prefetch))) {
          FsdpOptions options = plain;
          options.prefetch_units = prefetch;
          options.max_live_elements = live;
          options.reductions_in_flight = in_flight;
          options.reduce_bucket_elements = live;
          const Job job{.ranks = 4, .options = options, .evaluate = prefetch != 1};
          expect_same_bits(train(job, noisy), truth, "prefetch " + std::to_string(prefetch));
        }
      }
    }
  }
}

TEST(ShardedModel, equal_gradients_on_all_ranks_give_the_bits_of_one_rank) {
  const Gradient same = [](GradientKey at) {
    at.rank = 0;
    return noisy(at);
  };
  const Outcome one = train({.ranks = 1}, same);
  for (const FsdpOptions& options : all_rows(4)) {
    expect_same_bits(train({.ranks = 4, .options = options}, same), one, row_name(options));
  }
}

TEST(ShardedModel, two_hops_give_the_same_bits_on_every_row_that_sums_over_the_same_ranks) {
  // Sums of micro-steps are added in shards: the order depends on the degree, not on the row.
  for (const int degree : {1, 2, 4}) {
    std::optional<Outcome> truth;
    for (FsdpOptions options : all_rows(4)) {
      options.micro_steps = 3;
      if (options.hybrid_shard_degree != degree || options.strategy == "zero1") {
        continue;  // zero1 keeps gradients full, and so adds locally
      }
      const Outcome outcome = train({.ranks = 4, .options = options}, noisy);
      if (!truth) {
        truth = outcome;
      }
      expect_same_bits(outcome, *truth, row_name(options));
    }
  }
}

/// The same training in plain loops; gradients must sum exactly.
Outcome reference(const Job& job, const Gradient& gradient) {
  struct Element {
    int unit, index;
    std::size_t element;
    bool decay;
    float parameter, first, second, sum;
  };
  std::vector<Element> model;
  const std::vector<UnitSpec> specs = small_units();
  for (int unit = 0; unit < static_cast<int>(specs.size()); ++unit) {
    for (int index = 0; index < static_cast<int>(specs[unit].parameters.size()); ++index) {
      const ParameterSpec& spec = specs[unit].parameters[index];
      std::size_t count = 1;
      for (const std::int64_t extent : spec.shape) {
        count *= static_cast<std::size_t>(extent);
      }
      for (std::size_t i = 0; i < count; ++i) {
        model.push_back({unit, index, i, spec.decay, spec.initial(i), 0, 0, 0});
      }
    }
  }
  constexpr float beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f, weight_decay = 0.1f;
  Outcome outcome;
  double power1 = 1, power2 = 1;
  for (int step = 0; step < job.steps; ++step) {
    const int terms = job.ranks * job.options.micro_steps;
    double squares = 0;
    for (Element& e : model) {
      e.sum = 0;
      const int visits = job.options.micro_steps * (e.unit == 0 ? 2 : 1);
      for (int rank = 0; rank < job.ranks; ++rank) {
        for (int visit = 0; visit < visits; ++visit) {
          e.sum += gradient({rank, step, visit, e.unit, e.index, e.element, e.parameter});
        }
      }
      squares += double{e.sum} * double{e.sum};
    }
    const double inverse = 1.0 / terms, norm = std::sqrt(squares) * inverse;
    outcome.norms.push_back(norm);
    const double clip = std::min(1.0, double{job.options.clip_norm} / (norm + 1e-6));
    const float scale = static_cast<float>(clip * inverse);
    power1 *= double{beta1};
    power2 *= double{beta2};
    const float size = static_cast<float>(double{small_rate} / (1 - power1));
    const float correction = static_cast<float>(1 / std::sqrt(1 - power2));
    const double lost = double{small_rate} * double{weight_decay};
    for (Element& e : model) {
      const float g = e.sum * scale;
      e.first = beta1 * e.first + (1.0f - beta1) * g;
      e.second = beta2 * e.second + (1.0f - beta2) * (g * g);
      e.parameter *= e.decay ? static_cast<float>(1 - lost) : 1.0f;
      e.parameter -= size * (e.first / (std::sqrt(e.second) * correction + epsilon));
    }
  }
  for (const Element& e : model) {
    outcome.values.push_back(std::bit_cast<std::uint32_t>(e.parameter));
  }
  return outcome;
}

TEST(ShardedModel, follows_the_scalar_reference_at_any_number_of_ranks) {
  for (const int ranks : {1, 2, 3, 4, 6}) {
    for (FsdpOptions options : all_rows(ranks)) {
      for (const int micro_steps : {1, 2}) {
        for (const Accumulate accumulate : {Accumulate::two_hop, Accumulate::local}) {
          options.micro_steps = micro_steps;
          options.accumulate = accumulate;
          options.gradient_wire = ranks % 2 == 0 ? DType::bf16 : DType::f32;  // exact either way
          const Job job{.ranks = ranks, .options = options, .steps = 2};
          expect_same_bits(train(job, small_integer), reference(job, small_integer),
                           row_name(options) + " on " + std::to_string(ranks));
        }
      }
    }
  }
}

TEST(ShardedModel, persistent_parameters_follow_the_scalar_reference) {
  for (FsdpOptions options : all_rows(4)) {
    for (const std::size_t threshold : {std::size_t{34}, std::size_t{2000}, std::size_t{100000}}) {
      options.persistence_threshold = threshold;
      options.micro_steps = 2;
      const Job job{.ranks = 4, .options = options, .steps = 2};
      expect_same_bits(train(job, small_integer), reference(job, small_integer),
                       row_name(options) + ", threshold " + std::to_string(threshold));
    }
  }
}

TEST(ShardedModel, what_persists_does_not_change_what_is_rounded_by_chance) {
  for (FsdpOptions options : all_rows(2)) {
    options.parameter_dtype = DType::bf16;
    options.stochastic_rounding = true;
    const Job job{.ranks = 2, .options = options, .steps = 2};
    const Outcome truth = train(job, small_integer);
    for (const std::size_t threshold : {std::size_t{34}, std::size_t{2000}, std::size_t{100000}}) {
      Job other = job;
      other.options.persistence_threshold = threshold;
      expect_same_bits(train(other, small_integer), truth,
                       row_name(options) + ", threshold " + std::to_string(threshold));
    }
  }
}

TEST(ShardedModel, a_gradient_that_is_not_finite_skips_the_step_on_every_rank) {
  const Gradient broken = [](const GradientKey& at) {
    const bool here = at.rank == 2 && at.step == 1 && at.unit == 1 && at.element == 5;
    return here ? std::numeric_limits<float>::infinity() : noisy(at);
  };
  for (FsdpOptions options : all_rows(4)) {
    options.loss_scale = {.dynamic = true, .initial = 8, .hysteresis = 1};
    run_virtual_ranks(4, Config{}, [&](Communicator& world) {
      Engine model(world, small_units(), with_small_order(options));
      for (int step = 0; step < 3; ++step) {
        const Values before = read_parameters(model);
        const double scale = model.scaler().scale();
        run_passes(model, world.rank(), step, broken);
        const StepResult result = model.step(small_rate, 0);
        EXPECT_EQ(result.skipped, step == 1) << "rank " << world.rank();
        EXPECT_EQ(model.scaler().scale(), step == 1 ? scale / 2 : scale);
        EXPECT_EQ(read_parameters(model) == before, step == 1) << "rank " << world.rank();
      }
      EXPECT_EQ(model.counters().at("optimizer_steps"), 2);
    });
  }
}

TEST(ShardedModel, an_overflow_of_the_narrow_wire_is_found_on_every_rank) {
  // 70000 is past the largest f16 on one rank only.
  const Gradient large = [](const GradientKey& at) {
    return at.rank == 1 && at.step == 0 && at.unit == 2 ? 70000.0f : noisy(at);
  };
  for (FsdpOptions options : all_rows(4)) {
    options.gradient_wire = DType::f16;
    const Outcome outcome = train({.ranks = 4, .options = options, .steps = 2}, large);
    EXPECT_EQ(outcome.skipped, (std::vector<bool>{true, false})) << row_name(options);
  }
}

TEST(ShardedModel, a_parameter_without_a_gradient_has_one_of_zero) {
  for (const FsdpOptions& options : all_rows(2)) {
    run_virtual_ranks(2, Config{}, [&](Communicator& world) {
      Engine model(world, small_units(), with_small_order(options));
      for (int step = 0; step < 2; ++step) {
        for (const int unit : small_forward) {
          model.acquire(unit);
          model.release(unit);
        }
        for (const int unit : small_backward) {
          model.acquire(unit);
          // Only the first parameter of the embedding; other units fill its slots in between.
          const int last = step == 0 ? 2 : unit == 0 ? 1 : 0;
          for (int index = 0; index < last; ++index) {
            std::ranges::fill(model.gradient_target(unit, index).values, 1.0f);
          }
          model.release(unit);
          if (unit != 0) {
            model.reduce(unit);
          }
        }
        model.reduce(0);
        const double expected = step == 0 ? 101 * 64 + 17 + 2 * (65 * 33 + 33) : 101 * 64;
        EXPECT_EQ(model.step(small_rate, 0).grad_norm, std::sqrt(expected)) << row_name(options);
      }
    });
  }
}

TEST(ShardedModel, the_divisor_divides_once) {
  std::vector<Values> values;
  for (const double divisor : {0.0, 4.0}) {
    run_virtual_ranks(4, Config{}, [&](Communicator& world) {
      Engine model(world, small_units(), with_small_order({}));
      run_passes(model, world.rank(), 0, noisy);
      model.step(small_rate, divisor);
      const Values mine = read_parameters(model);
      if (world.rank() == 0) {
        values.push_back(mine);
      }
    });
  }
  EXPECT_TRUE(values[0] == values[1]);
}

TEST(ShardedModel, broken_contracts_are_refused_by_name) {
  run_virtual_ranks(2, Config{}, [](Communicator& world) {
    const auto with_degree = [](int degree) {
      return with_small_order({.hybrid_shard_degree = degree});
    };
    EXPECT_EQ(message_of([&] { ShardedModel(world, small_units(), with_degree(3)); }),
              "hybrid_shard_degree 3 does not divide the 2 ranks of the world; allowed: 0, 1, 2 "
              "(0: as many as the strategy takes)");
    EXPECT_EQ(message_of([&] {
                FsdpOptions options{.micro_steps = 2};
                options.visits = plain_visits(small_forward, small_backward, 2);
                options.visits.pop_back();
                std::erase(options.visits, Visit{1, VisitPass::backward, 1});
                ShardedModel(world, small_units(), options);
              }),
              "no backward visits unit \"block0\" in micro-batch 1; every unit has a gradient in "
              "each, which is reduced after its last visit there");
    EXPECT_EQ(
        message_of([&] { ShardedModel(world, small_units(), {.stochastic_rounding = true}); }),
        "stochastic_rounding rounds to bf16 or f16, and parameter_dtype is f32");
    ShardedModel model(world, small_units(), with_degree(0));
    EXPECT_STREQ(model.strategy().name, "zero3");
    EXPECT_EQ(model.hybrid_shard_degree(), 2);
    EXPECT_EQ(model.parameter_count(), 101 * 64 + 17 + 2 * (65 * 33 + 33) + 1500 + 1);
    EXPECT_EQ(message_of([&] { model.parameter(1, 0); }),
              "parameter(1, 0) of unit \"block0\", which is not acquired; acquire() it first");
    EXPECT_EQ(message_of([&] { model.acquire(2); }),
              "acquire(2) is out of the declared order: expected \"embed\", got \"block1\"");
    EXPECT_EQ(message_of([&] { model.gradient(3, 0); }), "there is no unit 3; units are 0 to 2");
    EXPECT_EQ(message_of([&] { model.gradient(0, 2); }),
              "unit \"embed\" has no parameter 2; it has 2");
    EXPECT_EQ(message_of([&] { model.step(0.1f); }),
              "step() before reduce() of unit \"embed\", which came 0 of 1 times");
    model.reduce(0);
    EXPECT_EQ(message_of([&] { model.reduce(0); }),
              "reduce() of unit \"embed\" came 2 times before step(); micro_steps is 1");
    EXPECT_EQ(
        message_of([&] { model.gradient(0, 0); }),
        "gradient() of unit \"embed\" after its reduce(); its next gradient belongs to the next "
        "step");
    model.acquire(0);
    EXPECT_EQ(message_of([&] { model.step(0.1f); }),
              "step() in the middle of a pass: next comes \"block0\", and every acquire() has its "
              "release() before");
  });
}

}  // namespace
}  // namespace sprat::fsdp
