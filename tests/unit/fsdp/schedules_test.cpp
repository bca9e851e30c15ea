// Visits in the order of every kind of pipeline schedule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "mp/actions.hpp"
#include "mp/schedule.hpp"
#include "tests/unit/comm/base/refused.hpp"
#include "tests/unit/fsdp/small_model.hpp"

namespace sprat::fsdp {
namespace {

constexpr int units_a_stage = 2;

/// What a rank of a pipeline does, as visits; its stages in the order of the model have units 0 and
/// 1, 2 and 3, ...
struct RankVisits {
  std::string name;
  int stages = 0, microbatches = 0;
  std::vector<Visit> visits;
  std::vector<int> forward, backward;  ///< Of one micro-batch after another.
};

RankVisits visits_of(const mp::Schedule& schedule, int rank) {
  RankVisits result{.name = schedule.name + " of " + std::to_string(schedule.ranks()) + " ranks, " +
                            std::to_string(schedule.microbatches) + " micro-batches, rank " +
                            std::to_string(rank),
                    .microbatches = schedule.microbatches,
                    .visits = {},
                    .forward = {},
                    .backward = {}};
  std::vector<int> first_unit;
  for (const int its : schedule.rank_of_stage) {
    first_unit.push_back(result.stages * units_a_stage);
    result.stages += its == rank ? 1 : 0;
  }
  for (int unit = 0; unit < result.stages * units_a_stage; ++unit) {
    result.forward.push_back(unit);
    result.backward.insert(result.backward.begin(), unit);
  }
  // Gradients of inputs add to none of weights; half of the ranks do not say so.
  const VisitPass of_inputs = rank % 2 == 0 ? VisitPass::forward : VisitPass::backward;
  // Those of weights read no values; some ranks say that as well.
  const VisitPass of_weights = rank % 4 == 0 ? VisitPass::gradient : VisitPass::backward;
  for (const mp::Action& action : schedule.actions[static_cast<std::size_t>(rank)]) {
    for (const mp::Action& part : mp::parts_of(action)) {
      const bool forward = part.op == mp::Op::forward;
      for (int at = 0; at < units_a_stage; ++at) {
        result.visits.push_back({first_unit[static_cast<std::size_t>(part.stage)] +
                                     (forward ? at : units_a_stage - 1 - at),
                                 forward                              ? VisitPass::forward
                                 : part.op == mp::Op::backward_input  ? of_inputs
                                 : part.op == mp::Op::backward_weight ? of_weights
                                                                      : VisitPass::backward,
                                 part.microbatch});
      }
    }
  }
  return result;
}

std::vector<RankVisits> all_visits() {
  std::vector<RankVisits> all;
  for (const mp::ScheduleKind* kind : mp::all_schedules()) {
    for (int ranks = 1; ranks <= 4; ++ranks) {
      for (int microbatches = 1; microbatches <= 8; ++microbatches) {
        for (const int stages : {1, 2}) {
          const mp::PipelineShape shape{
              .ranks = ranks, .microbatches = microbatches, .stages_per_rank = stages};
          if (!kind->refusal(shape).empty()) {
            continue;
          }
          const mp::Schedule schedule = kind->make(shape);
          for (int rank = 0; rank < ranks; ++rank) {
            all.push_back(visits_of(schedule, rank));
          }
        }
      }
    }
  }
  return all;
}

std::vector<UnitSpec> stage_units(int stages) {
  std::vector<UnitSpec> units;
  for (int unit = 0; unit < stages * units_a_stage; ++unit) {
    const std::string name = "u" + std::to_string(unit);
    units.push_back(
        {.name = name,
         .parameters = {{.name = name,
                         .shape = {40 * (1 + unit % 3)},
                         .initial = [](std::uint64_t i) { return static_cast<float>(i % 7); }}}});
  }
  return units;
}

/// Two steps in the order of the visits, an evaluation after each. Only a micro-batch's last
/// backward visit of a unit writes, as where weights have a pass of their own.
Outcome run_stage(Engine& model, int rank, const std::vector<Visit>& visits) {
  Outcome outcome;
  for (int step = 0; step < 2; ++step) {
    for (auto visit = visits.begin(); visit != visits.end(); ++visit) {
      model.acquire(visit->unit);
      EXPECT_TRUE(model.has_values(visit->unit) || !reads_values(visit->pass));
      const bool last = std::find(visit + 1, visits.end(), *visit) == visits.end();
      if (adds_gradient(visit->pass) && last) {
        const GradientTarget into = model.gradient_target(visit->unit, 0);
        for (std::size_t i = 0; i < into.values.size(); ++i) {
          const float one = noisy({.rank = rank,
                                   .step = step,
                                   .visit = visit->microbatch,
                                   .unit = visit->unit,
                                   .element = i});
          into.values[i] = into.fresh ? one : into.values[i] + one;
        }
      }
      model.release(visit->unit);
      if (adds_gradient(visit->pass) && last) {
        model.reduce(visit->unit);
      }
    }
    outcome.norms.push_back(model.step(small_rate, 0).grad_norm);
    for (const int unit : model.options().evaluation) {
      model.acquire(unit);
      const ConstElements values = model.parameter(unit, 0);
      const auto* const bits = static_cast<const std::uint32_t*>(values.data);
      outcome.values.insert(outcome.values.end(), bits, bits + values.count);
      model.release(unit);
    }
  }
  return outcome;
}

/// Options that between them use every kind of slot.
const std::vector<FsdpOptions> stage_options = {
    {.strategy = "zero3"},
    {.strategy = "zero3", .prefetch_units = 0, .reductions_in_flight = 2},
    {.strategy = "zero3", .prefetch_units = 2, .gradient_wire = DType::bf16},
    {.strategy = "zero2", .reductions_in_flight = 3},
    {.strategy = "zero1", .gradient_wire = DType::f16},
    {.strategy = "zero3", .accumulate = Accumulate::local},
    {.strategy = "zero3", .max_live_elements = 1},
};

/// Each unit's micro-batches end in their order, so the bits are those of one after another.
TEST(PipelineVisits, of_every_schedule_stay_within_the_plan_and_give_the_bits_of_plain_ones) {
  const std::vector<RankVisits> all = all_visits();
  run_virtual_ranks(2, Config{}, [&](Communicator& world) {
    std::map<std::array<std::size_t, 3>, Outcome> plain;  // by options, micro-batches, stages
    for (std::size_t at = 0; at < all.size(); ++at) {
      const RankVisits& one = all[at];
      const std::size_t which = at % stage_options.size();
      FsdpOptions options = stage_options[which];
      options.micro_steps = one.microbatches;
      options.evaluation = one.forward;
      const auto run = [&](const std::vector<Visit>& visits) {
        options.visits = visits;
        Engine model(world, stage_units(one.stages), options);
        Outcome outcome = run_stage(model, world.rank(), visits);
        EXPECT_LE(model.bytes_high_water(), model.memory_plan().total()) << one.name;
        return outcome;
      };
      Outcome& truth = plain[{which, static_cast<std::size_t>(one.microbatches),
                              static_cast<std::size_t>(one.stages)}];
      if (truth.norms.empty()) {
        truth = run(plain_visits(one.forward, one.backward, one.microbatches));
      }
      expect_same_bits(run(one.visits), truth, one.name);
    }
  });
}

TEST(PipelineVisits, of_a_gradient_alone_have_no_values) {
  run_virtual_ranks(2, Config{}, [](Communicator& world) {
    FsdpOptions options{.strategy = "zero3",
                        .visits = {{0, VisitPass::forward, 0},
                                   {1, VisitPass::forward, 0},
                                   {1, VisitPass::backward, 0},
                                   {0, VisitPass::gradient, 0}},
                        .evaluation = {0, 1}};
    Engine model(world, stage_units(1), options);
    for (const int unit : {0, 1, 1}) {
      model.acquire(unit);
      model.release(unit);
    }
    const std::uint64_t gathered = model.traffic().parameters;
    model.acquire(0);
    EXPECT_FALSE(model.has_values(0));
    EXPECT_EQ(model.traffic().parameters, gathered);
    EXPECT_EQ(model.gradient_target(0, 0).values.size(), 40u);
    EXPECT_THAT(message_of([&] { model.parameter(0, 0); }),
                testing::HasSubstr("declared to need a gradient alone; declare it as backward"));
    model.release(0);
  });
}

}  // namespace
}  // namespace sprat::fsdp
