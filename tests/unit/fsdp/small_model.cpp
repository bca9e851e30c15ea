// The small model, its gradients, and how it is trained.
#include "tests/unit/fsdp/small_model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "comm/base/hash.hpp"
#include "fsdp/plan/placement.hpp"
#include "fsdp/rounding.hpp"

namespace sprat::fsdp {

float noise(std::uint64_t key) {
  key = mix_bits(key + golden_step);
  return static_cast<float>(static_cast<std::int32_t>(key >> 40) - (1 << 23)) * 0x1p-23f;
}

std::uint64_t key_of(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d) {
  return ((a * 131 + b) * 131 + c) * 1'000'003 + d;
}

const std::vector<std::vector<std::vector<std::int64_t>>> small_shapes = {
    {{101, 64}, {17}}, {{65, 33}, {33}, {1500}}, {{65, 33}, {33}, {1}}};
const std::vector<int> small_forward = {0, 1, 2, 0};
const std::vector<int> small_backward = {0, 2, 1, 0};
const std::vector<int> small_tied_forward = {0, 1, 2, 3};
const std::vector<int> small_tied_backward = {3, 2, 1, 0};

std::vector<UnitSpec> small_units() {
  const std::vector<std::string> names = {"embed", "block0", "block1"};
  std::vector<UnitSpec> units;
  for (std::size_t unit = 0; unit < small_shapes.size(); ++unit) {
    units.push_back({.name = names[unit], .parameters = {}});
    for (std::size_t index = 0; index < small_shapes[unit].size(); ++index) {
      units.back().parameters.push_back(
          {.name = names[unit] + ".p" + std::to_string(index),
           .shape = small_shapes[unit][index],
           .decay = small_shapes[unit][index].size() > 1,
           .initial = [=](std::uint64_t i) { return noise(key_of(7, unit, index, i)); }});
    }
  }
  return units;
}

std::vector<UnitSpec> small_tied_units() {
  std::vector<UnitSpec> units = small_units();
  units.push_back({.name = "head", .parameters = units[0].parameters, .tied_to = 0});
  return units;
}

namespace {

float noise_at(const GradientKey& at) {
  const std::uint64_t where = key_of(
      static_cast<std::uint64_t>(at.rank), static_cast<std::uint64_t>(at.step),
      static_cast<std::uint64_t>(at.visit), static_cast<std::uint64_t>(at.unit * 8 + at.index));
  return noise(key_of(where, 0, 0, at.element));
}

}  // namespace

float noisy(const GradientKey& at) { return noise_at(at) + 0.25f * at.parameter; }

float small_integer(const GradientKey& at) { return std::floor(noise_at(at) * 8.0f) * 0x1p-4f; }

FsdpOptions with_small_order(FsdpOptions options) {
  if (options.visits.empty()) {
    options.visits = plain_visits(small_forward, small_backward, options.micro_steps);
  }
  return options;
}

namespace {

/// A parameter of an acquired unit, as f32.
std::vector<float> values_of(const Engine& model, int unit, int index) {
  const ConstElements full = model.parameter(unit, index);
  std::vector<float> values(full.count);
  widen(full.dtype, full.data, values);
  return values;
}

/// The unit that has the parameters.
int owner_of(int unit) { return unit == static_cast<int>(small_shapes.size()) ? 0 : unit; }

}  // namespace

Values read_parameters(Engine& model) {
  std::vector<Values> units(small_shapes.size());
  for (const Visit& visit : model.options().visits) {
    if (visit.pass != VisitPass::forward || visit.microbatch != 0) {
      continue;  // the evaluation that is declared by default
    }
    const auto owner = static_cast<std::size_t>(owner_of(visit.unit));
    model.acquire(visit.unit);
    Values values;
    for (std::size_t index = 0; index < small_shapes[owner].size(); ++index) {
      for (const float value : values_of(model, visit.unit, static_cast<int>(index))) {
        values.push_back(std::bit_cast<std::uint32_t>(value));
      }
    }
    units[owner] = std::move(values);
    model.release(visit.unit);
  }
  Values all;
  for (const Values& values : units) {
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

void run_passes(Engine& model, int rank, int step, const Gradient& gradient, const Used& used) {
  const std::vector<Visit>& visits = model.options().visits;
  const int head = static_cast<int>(small_shapes.size());
  const bool tied = std::ranges::count(visits, head, &Visit::unit) != 0;
  std::vector<int> times(small_shapes.size() + 1, 0);
  for (auto visit = visits.begin(); visit != visits.end(); ++visit) {
    const int unit = visit->unit, owner = owner_of(unit);
    model.acquire(unit);
    if (visit->pass == VisitPass::forward) {
      model.release(unit);
      continue;
    }
    int time = times[static_cast<std::size_t>(unit)]++;
    int use = static_cast<int>(std::count(visits.begin(), visit, *visit));
    if (tied && owner == 0) {
      use = unit == head ? 0 : 1;  // a backward begins with the head
      time = 2 * time + use;
    }
    const auto& shapes = small_shapes[static_cast<std::size_t>(owner)];
    const bool is_used = !used || used(rank, visit->microbatch, unit);
    for (int index = 0; is_used && index < static_cast<int>(shapes.size()); ++index) {
      const std::vector<float> values = values_of(model, unit, index);
      const GradientTarget into = model.gradient_target(unit, index);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const float one =
            gradient({rank, step, time, owner, index, i, values[i], visit->microbatch, use});
        into.values[i] = into.fresh ? one : into.values[i] + one;
      }
    }
    model.release(unit);
    if (std::find(visit + 1, visits.end(), *visit) == visits.end()) {
      model.reduce(unit);
    }
  }
}

namespace {

bool same_number(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

}  // namespace

Outcome train(const Job& job, const Gradient& gradient, const QueueKind& queues) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(job.ranks));
  Config config;
  config.host = job.hosts;
  run_virtual_ranks(job.ranks, config, [&](Communicator& world) {
    Engine model(world, job.units, with_small_order(job.options), queues);
    Outcome& outcome = outcomes[static_cast<std::size_t>(world.rank())];
    for (int step = 0; step < job.steps; ++step) {
      run_passes(model, world.rank(), step, gradient, job.used);
      const StepResult result = model.step(small_rate, 0);
      outcome.norms.push_back(result.grad_norm);
      outcome.skipped.push_back(result.skipped);
      if (job.evaluate) {
        read_parameters(model);
      }
    }
    outcome.values = read_parameters(model);
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.values == outcomes[0].values) << row_name(job.options);
    EXPECT_TRUE(std::ranges::equal(outcome.norms, outcomes[0].norms, same_number))
        << row_name(job.options);
  }
  return outcomes[0];
}

void expect_same_bits(const Outcome& a, const Outcome& b, const std::string& what) {
  ASSERT_EQ(a.values.size(), b.values.size()) << what;
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    ASSERT_EQ(std::bit_cast<float>(a.values[i]), std::bit_cast<float>(b.values[i]))
        << what << ", element " << i;
  }
  EXPECT_EQ(a.norms, b.norms) << what;
}

std::vector<FsdpOptions> all_rows(int ranks) {
  std::vector<FsdpOptions> rows;
  for (const Strategy& strategy : all_strategies()) {
    for (const int degree : allowed_degrees(ranks)) {
      FsdpOptions options;
      options.strategy = strategy.name;
      options.hybrid_shard_degree = degree;
      try {
        choose_sharding(ranks, options.strategy, degree);
      } catch (const Error&) {
        continue;  // the strategy takes another degree
      }
      rows.push_back(std::move(options));
    }
  }
  return rows;
}

std::string row_name(const FsdpOptions& options) {
  return options.strategy + " of " + std::to_string(options.hybrid_shard_degree);
}

}  // namespace sprat::fsdp
