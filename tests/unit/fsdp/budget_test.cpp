// Bytes: what a rank keeps and borrows, and what it sends, are the formulas of docs/fsdp.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fsdp/plan/placement.hpp"
#include "tests/unit/fsdp/small_model.hpp"

namespace sprat::fsdp {
namespace {

/// Padded elements of the three units, the embedding first.
std::vector<std::size_t> padded_units(const FsdpOptions& options, int ranks) {
  const Sharding sharding = choose_sharding(ranks, options.strategy, options.hybrid_shard_degree);
  std::vector<std::size_t> padded;
  for (const UnitSpec& unit : small_units()) {
    padded.push_back(lay_out(unit, optimizer_part(sharding, 0).parts).padded);
  }
  return padded;
}

/// Steps on every rank, and calls `body` there afterwards.
template <class Body>
void after_steps(int ranks, const FsdpOptions& options, int steps, Body body) {
  run_virtual_ranks(ranks, Config{}, [&](Communicator& world) {
    Engine model(world, small_units(), with_small_order(options));
    for (int step = 0; step < steps; ++step) {
      run_passes(model, world.rank(), step, noisy);
      model.step(small_rate, 0);
    }
    body(model);
  });
}

/// What docs/fsdp.md says of one prefetched unit, one sum in flight and one micro-step. Visits are
/// embedding, block, block, embedding, and back. Two of the three are full at a time, so of each
/// of embedding and blocks one has a slot, and the second block shares with none. A gradient: the
/// embedding's lasts from the head to the end, one block's is made while the other's is summed.
MemoryPlan formula(const FsdpOptions& options, int ranks) {
  const Sharding sharding = choose_sharding(ranks, options.strategy, options.hybrid_shard_degree);
  const std::vector<std::size_t> padded = padded_units(options, ranks);
  const std::size_t parameter = size_of(options.parameter_dtype);
  const std::size_t wire = size_of(options.gradient_wire);
  MemoryPlan plan;
  for (const std::size_t unit : padded) {
    plan.kept += kept_bytes(sharding, unit, options.parameter_dtype, 2).total();
  }
  const std::size_t all = padded[0] + padded[1] + padded[2];
  if (gathers_parameters(sharding)) {
    plan.parameter_slots = all * parameter;  // each pair meets: 0 and 1, 1 and 2, 2 and 0
  }
  if (shards_gradients(sharding)) {
    plan.gradient_slots = all * sizeof(float);
  } else if (options.gradient_wire != DType::f32) {
    plan.gradient_slots = *std::ranges::max_element(padded) * wire;  // one sum at a time
  }
  return plan;
}

TEST(Budget, high_water_is_the_plan_and_the_plan_is_the_formula_for_every_row) {
  for (FsdpOptions options : all_rows(4)) {
    for (const auto& [parameters, wire] :
         {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}}) {
      options.parameter_dtype = parameters;
      options.gradient_wire = wire;
      const MemoryPlan expected = formula(options, 4);
      after_steps(4, options, 2, [&](Engine& model) {
        EXPECT_EQ(model.memory_plan().kept, expected.kept) << row_name(options);
        EXPECT_EQ(model.memory_plan().parameter_slots, expected.parameter_slots)
            << row_name(options);
        EXPECT_EQ(model.memory_plan().gradient_slots, expected.gradient_slots) << row_name(options);
        EXPECT_EQ(model.bytes_high_water(), expected.total()) << row_name(options);
      });
    }
  }
}

/// A chain of equal units: the double buffer that everybody expects.
TEST(Budget, of_a_chain_of_equal_units_two_are_full_and_two_have_gradients) {
  std::vector<UnitSpec> units;
  for (int unit = 0; unit < 6; ++unit) {
    units.push_back({.name = "u" + std::to_string(unit),
                     .parameters = {{.name = "w" + std::to_string(unit),
                                     .shape = {4, 1024},
                                     .decay = true,
                                     .initial = {}}}});
  }
  constexpr std::size_t bytes = 4 * 1024 * sizeof(float);
  for (const int prefetch : {0, 1, 2}) {
    for (const int in_flight : {1, 2}) {
      run_virtual_ranks(2, Config{}, [&](Communicator& world) {
        Engine model(world, units, {.prefetch_units = prefetch, .reductions_in_flight = in_flight});
        EXPECT_EQ(model.memory_plan().parameter_slots, (1 + prefetch) * bytes);
        EXPECT_EQ(model.memory_plan().gradient_slots, (1 + in_flight) * bytes);
        EXPECT_EQ(model.memory_plan().kept, 6 * bytes / 2 * 4);
      });
    }
  }
}

TEST(Budget, evaluation_budgets_and_micro_steps_stay_within_the_plan) {
  for (FsdpOptions options : all_rows(4)) {
    for (const int micro_steps : {1, 3}) {
      for (const Accumulate accumulate : {Accumulate::two_hop, Accumulate::local}) {
        options.micro_steps = micro_steps;
        options.accumulate = accumulate;
        after_steps(4, options, 2, [&](Engine& model) {
          read_parameters(model);
          run_passes(model, 0, 0, noisy);
          EXPECT_LE(model.bytes_high_water(), model.memory_plan().total()) << row_name(options);
        });
      }
    }
  }
}

TEST(Budget, live_parameters_bound_what_is_gathered_ahead) {
  FsdpOptions options{.strategy = "zero3", .prefetch_units = 2};
  const std::vector<std::size_t> padded = padded_units(options, 4);
  const std::size_t largest = *std::ranges::max_element(padded);
  options.max_live_elements = 1;  // nothing ahead: the unit in use, and at the turn the next
  after_steps(4, options, 2, [&](Engine& model) {
    EXPECT_LE(model.memory_plan().parameter_slots, largest * sizeof(float));
    EXPECT_LE(model.bytes_high_water(), model.memory_plan().total());
  });
}

/// Bytes of a step by the table of docs/fsdp.md: M elements of all units, the embedding E of them.
Traffic table(const FsdpOptions& options, int ranks) {
  const Sharding sharding = choose_sharding(ranks, options.strategy, options.hybrid_shard_degree);
  const std::vector<std::size_t> padded = padded_units(options, ranks);
  const std::size_t all = padded[0] + padded[1] + padded[2];
  const auto n = static_cast<std::size_t>(ranks);
  const auto s = static_cast<std::size_t>(sharding.shards), r = n / s;
  const auto k = static_cast<std::size_t>(options.micro_steps);
  const std::size_t b = size_of(options.parameter_dtype), wire = size_of(options.gradient_wire);
  const std::string name = sharding.strategy->name;
  const bool local = options.accumulate == Accumulate::local;
  Traffic sent;
  if (gathers_parameters(sharding)) {
    // The embedding is visited first and last in each direction: gathered for the first visit and
    // for the head, kept through the turn, gathered for the last visit, and kept from there into
    // the next micro-step. The block next to a turn is kept beside it: the second one is gathered
    // in forward alone, the first one in backward and for the very first forward.
    sent.parameters =
        ((1 + 2 * k) * padded[0] + (1 + k) * padded[1] + k * padded[2]) / s * (s - 1) * b;
  }
  if (name == "zero1" || name == "zero2") {
    sent.parameters = all / n * (n - 1) * b;
  }
  if (name == "hfsdp") {
    sent.parameters += all / s / r * (r - 1) * b;
  }
  if (name == "ddp") {
    sent.gradients = all / n * (n - 1) * (wire + sizeof(float));
    return sent;
  }
  const std::size_t sums = shards_gradients(sharding) && !local ? k : 1;
  const bool scattered = s > 1;
  sent.gradients = scattered ? sums * (all / s * (s - 1)) * wire : 0;
  if (r > 1) {  // over replicas, in f32 unless it is the first sum
    const std::size_t first = scattered ? sizeof(float) : wire;
    const bool halves = name == "hfsdp";
    sent.gradients += all / s / r * (r - 1) * (halves ? first : first + sizeof(float));
  }
  return sent;
}

TEST(Budget, payload_is_the_formula_of_the_table_for_every_row) {
  for (FsdpOptions options : all_rows(8)) {
    for (const int micro_steps : {1, 3}) {
      for (const auto& [parameters, wire] :
           {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::f16}}) {
        for (const Accumulate accumulate : {Accumulate::two_hop, Accumulate::local}) {
          options.micro_steps = micro_steps;
          options.parameter_dtype = parameters;
          options.gradient_wire = wire;
          options.accumulate = accumulate;
          const Traffic expected = table(options, 8);
          run_virtual_ranks(8, Config{}, [&](Communicator& world) {
            Engine model(world, small_units(), with_small_order(options));
            run_passes(model, world.rank(), 0, noisy);
            // The first gather of the next step, of the embedding, begins in step().
            const std::uint64_t gathered = model.traffic().parameters;
            model.step(small_rate, 0);
            const Sharding& sharding = model.sharding();
            const std::uint64_t ahead =
                gathers_parameters(sharding)
                    ? padded_units(options, 8)[0] / static_cast<std::size_t>(sharding.shards) *
                          static_cast<std::size_t>(sharding.shards - 1) * size_of(parameters)
                    : 0;
            EXPECT_EQ(model.traffic().parameters - ahead, expected.parameters)
                << row_name(options) << ", " << gathered << " before the step";
            EXPECT_EQ(model.traffic().gradients, expected.gradients) << row_name(options);
          });
        }
      }
    }
  }
}

TEST(Budget, the_norm_costs_its_words_for_each_unit_along_axes_that_cut_the_optimizer) {
  for (const FsdpOptions& options : all_rows(8)) {
    run_virtual_ranks(8, Config{}, [&](Communicator& world) {
      Engine model(world, small_units(), with_small_order(options));
      run_passes(model, world.rank(), 0, noisy);
      model.step(small_rate, 0);
      const Sharding& sharding = model.sharding();
      std::uint64_t expected = 0;
      for (const Axis axis : {replica_axis, shard_axis}) {
        const auto ranks = static_cast<std::uint64_t>(sharding.size(axis));
        if (sharding.strategy->optimizer[axis] == Placement::flat) {
          expected += 2 * (small_units().size() * sizeof(SquareSum) / ranks * (ranks - 1));
        }
      }
      EXPECT_EQ(model.traffic().norm, expected) << row_name(options);
    });
  }
}

TEST(Budget, sums_of_a_few_numbers_are_control) {
  run_virtual_ranks(4, Config{}, [&](Communicator& world) {
    Engine model(world, small_units(), with_small_order({}));
    std::vector<double> values = {1.0 + world.rank(), 0.5};
    model.sum_over_ranks(values);
    EXPECT_EQ(values, (std::vector<double>{10, 2}));
    EXPECT_EQ(model.traffic().control, 2 * 2 * sizeof(double) / 4 * 3);
  });
}

}  // namespace
}  // namespace sprat::fsdp
