// Units that are tied: a gradient for each use, and the parameters of one.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "sprat/fsdp.hpp"
#include "tests/unit/comm/base/refused.hpp"
#include "tests/unit/fsdp/small_model.hpp"
#include "tests/unit/sanitized.hpp"

namespace sprat::fsdp {
namespace {

Job tied(Job job) {
  job.units = small_tied_units();
  job.options.visits =
      plain_visits(small_tied_forward, small_tied_backward, job.options.micro_steps);
  return job;
}

struct TiedSetting {
  const char* name;
  std::function<void(FsdpOptions&)> apply;
};
const std::vector<TiedSetting> tied_settings = {
    {"f32", [](FsdpOptions&) {}},
    {"some persist", [](FsdpOptions& o) { o.persistence_threshold = 100; }},
    {"all persist", [](FsdpOptions& o) { o.persistence_threshold = 100000; }},
    {"bf16 rounded by chance, some persist",
     [](FsdpOptions& o) {
       o.parameter_dtype = o.gradient_wire = DType::bf16;
       o.stochastic_rounding = true;
       o.persistence_threshold = 100;
     }},
    {"everything in files",
     [](FsdpOptions& o) { o.state_tier = o.shard_tier = "file:" + testing::TempDir(); }},
    {"added locally", [](FsdpOptions& o) { o.accumulate = Accumulate::local; }},
};

TEST(TiedUnits, train_as_one_unit_that_is_visited_twice) {
  for (const TiedSetting& setting : tied_settings) {
    for (FsdpOptions options : part_if_sanitized(
             all_rows(4), 3, static_cast<std::size_t>(&setting - &tied_settings[0]))) {
      options.micro_steps = 2;
      setting.apply(options);
      const Job job{.ranks = 4, .options = options, .steps = 2, .evaluate = true};
      // Of gradients whose sums are exact: those of the head are added in another place.
      expect_same_bits(train(tied(job), small_integer), train(job, small_integer),
                       std::string(setting.name) + ", " + row_name(options));
    }
  }
}

TEST(TiedUnits, give_the_same_bits_on_every_row) {
  std::optional<Outcome> truth;
  for (FsdpOptions options : all_rows(4)) {
    options.micro_steps = 2;
    options.accumulate = Accumulate::local;
    const Outcome outcome = train(tied({.ranks = 4, .options = options}), noisy);
    if (!truth) {
      truth = outcome;
    }
    expect_same_bits(outcome, *truth, row_name(options));
  }
}

TEST(TiedUnits, keep_a_gradient_and_nothing_else) {
  for (FsdpOptions options : all_rows(4)) {
    for (const std::size_t threshold : {0, 100}) {
      options.persistence_threshold = threshold;
      const FsdpOptions with_tie = tied({.options = options}).options;
      run_virtual_ranks(4, Config{}, [&](Communicator& world) {
        Engine plain(world, small_units(), with_small_order(options));
        Engine model(world, small_tied_units(), with_tie);
        EXPECT_EQ(model.parameter_count(), plain.parameter_count());
        EXPECT_EQ(model.held().units.size(), plain.held().units.size());
        EXPECT_EQ(model.memory_plan().parameter_slots, plain.memory_plan().parameter_slots);
        std::size_t gradients = 0;
        for (const std::size_t unit : {std::size_t{0}, std::size_t{2}}) {
          const UnitSpec all = small_units()[0];
          UnitSpec part{.name = "", .parameters = {all.parameters[unit / 2]}};
          const bool persists = threshold > 0 && unit == 2;
          if (threshold == 0) {
            part.parameters = unit == 0 ? all.parameters : std::vector<ParameterSpec>{};
          }
          const Sharding sharding = persists ? replicated_sharding(4) : model.sharding();
          const FlatLayout layout = lay_out(part, optimizer_part(sharding, 0).parts);
          gradients += kept_bytes(sharding, layout.padded, DType::f32, 2).gradients;
        }
        EXPECT_EQ(model.memory_plan().kept, plain.memory_plan().kept + gradients)
            << row_name(options) << ", threshold " << threshold;
        for (int step = 0; step < 2; ++step) {
          run_passes(model, world.rank(), step, noisy);
          model.step(small_rate, 0);
        }
        EXPECT_EQ(model.bytes_high_water(), model.memory_plan().total()) << row_name(options);
      });
    }
  }
}

TEST(TiedUnits, broken_contracts_are_refused_by_name) {
  const auto refusal = [](const std::vector<UnitSpec>& units) {
    std::string message;
    run_virtual_ranks(1, Config{}, [&](Communicator& world) {
      message = message_of([&] { ShardedModel(world, units, {}); });
    });
    return message;
  };
  std::vector<UnitSpec> units = small_tied_units();
  units[3].tied_to = 3;
  EXPECT_EQ(
      refusal(units),
      "unit \"head\" is unit 3 and tied to unit 3; it may be tied to an earlier one that is not "
      "tied itself");
  units[3].tied_to = 1;
  EXPECT_EQ(refusal(units),
            "unit \"head\" is tied to \"block0\", whose parameters have other names, shapes or "
            "boxes; give "
            "it the same ones");
  units = small_tied_units();
  units[1].id = 2;
  EXPECT_EQ(refusal(units),
            "units \"block0\" and \"block1\" both have the id 2; give each its number in the whole "
            "model, or none of them any");
  units[1].id = std::uint64_t{1} << 32;
  EXPECT_EQ(refusal(units), "unit \"block0\" has the id 4294967296; ids are below 2^32");
}

}  // namespace
}  // namespace sprat::fsdp
