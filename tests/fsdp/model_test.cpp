// The sharded model: the same bits at every degree, and those of a scalar reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "fsdp/layout.hpp"
#include "fsdp/placement.hpp"
#include "sprat/fsdp.hpp"

namespace sprat {
namespace {

/// A value in [-1, 1) that looks random and depends only on the key.
float noise(std::uint64_t key) {
  key += 0x9e3779b97f4a7c15u;  // splitmix64
  key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9u;
  key = (key ^ (key >> 27)) * 0x94d049bb133111ebu;
  key ^= key >> 31;
  return static_cast<float>(static_cast<std::int32_t>(key >> 40) - (1 << 23)) * 0x1p-23f;
}

std::uint64_t key_of(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d) {
  return ((a * 131 + b) * 131 + c) * 1'000'003 + d;
}

/// An embedding that is also the head, and two blocks; sizes that no alignment divides.
const std::vector<std::vector<std::vector<std::int64_t>>> shapes = {
    {{101, 64}, {17}}, {{65, 33}, {33}, {1500}}, {{65, 33}, {33}, {1}}};
const std::vector<int> forward = {0, 1, 2, 0};
const std::vector<int> backward = {0, 2, 1, 0};

std::vector<UnitSpec> unit_specs() {
  const std::vector<std::string> names = {"embed", "block0", "block1"};
  std::vector<UnitSpec> units;
  for (std::size_t unit = 0; unit < shapes.size(); ++unit) {
    units.push_back({.name = names[unit], .parameters = {}});
    for (std::size_t index = 0; index < shapes[unit].size(); ++index) {
      units.back().parameters.push_back(
          {.name = "p" + std::to_string(index),
           .shape = shapes[unit][index],
           .decay = shapes[unit][index].size() > 1,
           .initial = [=](std::uint64_t i) { return noise(key_of(7, unit, index, i)); }});
    }
  }
  return units;
}

/// What rank `rank` adds to a gradient element at one visit. Visits of a unit: 0, 1, ...
struct GradientKey {
  int rank, step, visit, unit, index;
  std::size_t element;
  float parameter;
};
using Gradient = std::function<float(const GradientKey&)>;

float noisy(const GradientKey& at) {
  const std::uint64_t where = key_of(at.rank, at.step, at.visit, at.unit * 8 + at.index);
  return noise(key_of(where, 0, 0, at.element)) + 0.25f * at.parameter;
}

/// Every partial sum of these is exact.
float small_integer(const GradientKey& at) {
  const std::uint64_t where = key_of(at.rank, at.step, at.visit, at.unit * 8 + at.index);
  return std::floor(noise(key_of(where, 0, 0, at.element)) * 8.0f) * 0x1p-4f;
}

struct Job {
  int ranks = 1, degree = 1, steps = 3, prefetch = 1, micro_steps = 1;
  float clip_norm = 1.0f;
  bool evaluate = false;  ///< A forward pass after each step.
};
constexpr float learning_rate = 0.02f;

using Values = std::vector<std::uint32_t>;  // bits of every parameter, in order

struct Outcome {
  Values values;
  std::vector<double> norms;
};

Values read_parameters(ShardedModel& model) {
  std::vector<std::vector<Values>> parts(shapes.size());
  for (const int unit : forward) {
    model.acquire(unit);
    parts[unit].clear();
    for (std::size_t index = 0; index < shapes[unit].size(); ++index) {
      Values values;
      for (const float value : model.parameter(unit, static_cast<int>(index))) {
        values.push_back(std::bit_cast<std::uint32_t>(value));
      }
      parts[unit].push_back(std::move(values));
    }
    model.release(unit);
  }
  Values all;
  for (const auto& unit : parts) {
    for (const Values& values : unit) {
      all.insert(all.end(), values.begin(), values.end());
    }
  }
  return all;
}

void train_step(ShardedModel& model, const Job& job, int rank, int step, const Gradient& gradient) {
  std::vector<int> visits(shapes.size(), 0);
  std::vector<int> left(shapes.size(), 0);
  for (const int unit : backward) {
    left[unit] += job.micro_steps;
  }
  for (int micro_step = 0; micro_step < job.micro_steps; ++micro_step) {
    for (const int unit : forward) {
      model.acquire(unit);
      model.release(unit);
    }
    for (const int unit : backward) {
      model.acquire(unit);
      for (int index = 0; index < static_cast<int>(shapes[unit].size()); ++index) {
        const std::span<const float> values = model.parameter(unit, index);
        const std::span<float> into = model.gradient(unit, index);
        for (std::size_t i = 0; i < into.size(); ++i) {
          into[i] += gradient({rank, step, visits[unit], unit, index, i, values[i]});
        }
      }
      ++visits[unit];
      model.release(unit);
      if (--left[unit] == 0) {
        model.reduce(unit);
      }
    }
  }
}

FsdpOptions options_of(const Job& job) {
  FsdpOptions options;
  options.hybrid_shard_degree = job.degree;
  options.forward = forward;
  options.backward = backward;
  options.prefetch_units = job.prefetch;
  options.clip_norm = job.clip_norm;
  return options;
}

/// Trains, and checks that every rank ends with the same.
Outcome train(const Job& job, const Gradient& gradient) {
  std::vector<Outcome> outcomes(job.ranks);
  run_virtual_ranks(job.ranks, Config{}, [&](Communicator& world) {
    ShardedModel model(world, unit_specs(), options_of(job));
    Outcome& outcome = outcomes[world.rank()];
    for (int step = 0; step < job.steps; ++step) {
      train_step(model, job, world.rank(), step, gradient);
      outcome.norms.push_back(model.step(learning_rate).grad_norm);
      if (job.evaluate) {
        read_parameters(model);
      }
    }
    outcome.values = read_parameters(model);
  });
  for (int rank = 1; rank < job.ranks; ++rank) {
    EXPECT_TRUE(outcomes[rank].values == outcomes[0].values) << "rank " << rank;
    EXPECT_EQ(outcomes[rank].norms, outcomes[0].norms) << "rank " << rank;
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

TEST(ShardedModel, every_degree_gives_the_same_bits) {
  for (const int ranks : {2, 4, 8}) {
    const Outcome truth = train({.ranks = ranks, .degree = 1}, noisy);
    for (const int degree : fsdp::allowed_degrees(ranks)) {
      expect_same_bits(train({.ranks = ranks, .degree = degree}, noisy), truth,
                       "degree " + std::to_string(degree) + " of " + std::to_string(ranks));
    }
  }
}

TEST(ShardedModel, prefetching_and_evaluation_do_not_change_bits) {
  const Outcome truth = train({.ranks = 4, .degree = 2, .prefetch = 0}, noisy);
  for (const int prefetch : {0, 1, 2, 9}) {
    const Job job{.ranks = 4, .degree = 2, .prefetch = prefetch, .evaluate = prefetch != 1};
    expect_same_bits(train(job, noisy), truth, "prefetch " + std::to_string(prefetch));
  }
}

TEST(ShardedModel, equal_gradients_on_all_ranks_give_the_bits_of_one_rank) {
  const Gradient same = [](GradientKey at) {
    at.rank = 0;
    return noisy(at);
  };
  const Outcome one = train({.ranks = 1, .degree = 1}, same);
  for (const int degree : {1, 2, 4}) {
    expect_same_bits(train({.ranks = 4, .degree = degree}, same), one,
                     "degree " + std::to_string(degree));
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
  const std::vector<UnitSpec> specs = unit_specs();
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
  const AdamWOptions adamw;
  Outcome outcome;
  double power1 = 1, power2 = 1;
  for (int step = 0; step < job.steps; ++step) {
    double squares = 0;
    for (Element& e : model) {
      e.sum = 0;
      const int visits = job.micro_steps * (e.unit == 0 ? 2 : 1);
      for (int rank = 0; rank < job.ranks; ++rank) {
        for (int visit = 0; visit < visits; ++visit) {
          e.sum += gradient({rank, step, visit, e.unit, e.index, e.element, e.parameter});
        }
      }
      squares += double{e.sum} * double{e.sum};
    }
    const double norm = std::sqrt(squares) / job.ranks;
    outcome.norms.push_back(norm);
    const double clip = std::min(1.0, double{job.clip_norm} / (norm + 1e-6));
    const float scale = static_cast<float>(clip / job.ranks);
    power1 *= double{adamw.beta1};
    power2 *= double{adamw.beta2};
    const float size = static_cast<float>(double{learning_rate} / (1 - power1));
    const float correction = static_cast<float>(1 / std::sqrt(1 - power2));
    const double lost = double{learning_rate} * double{adamw.weight_decay};
    for (Element& e : model) {
      const float g = e.sum * scale;
      e.first = adamw.beta1 * e.first + (1.0f - adamw.beta1) * g;
      e.second = adamw.beta2 * e.second + (1.0f - adamw.beta2) * (g * g);
      e.parameter *= e.decay ? static_cast<float>(1 - lost) : 1.0f;
      e.parameter -= size * (e.first / (std::sqrt(e.second) * correction + adamw.epsilon));
    }
  }
  for (const Element& e : model) {
    outcome.values.push_back(std::bit_cast<std::uint32_t>(e.parameter));
  }
  return outcome;
}

TEST(ShardedModel, follows_the_scalar_reference_at_any_number_of_ranks) {
  for (const int ranks : {1, 2, 3, 4, 6}) {
    for (const int degree : fsdp::allowed_degrees(ranks)) {
      const Job job{.ranks = ranks, .degree = degree, .steps = 2, .micro_steps = 1 + degree % 2};
      expect_same_bits(train(job, small_integer), reference(job, small_integer),
                       "degree " + std::to_string(degree) + " of " + std::to_string(ranks));
    }
  }
}

TEST(ShardedModel, memory_keeps_to_its_formula) {
  for (const int degree : {1, 2, 4}) {
    for (const int prefetch : {0, 1, 2}) {
      const Job job{.ranks = 4, .degree = degree, .prefetch = prefetch};
      std::size_t kept = 0, largest = 0;
      for (const UnitSpec& unit : unit_specs()) {
        const std::size_t padded = fsdp::lay_out(unit, degree).padded;
        kept += fsdp::kept_bytes(fsdp::strategy_for(4, degree), padded, 4 / degree, degree).total();
        largest = std::max(largest, padded * sizeof(float));
      }
      // Full parameters: the unit in use and those ahead. Full gradients: the one being made, the
      // one being reduced, and the embedding's, which lasts from the head to the end.
      const std::size_t lent = degree == 1 ? 0 : (1 + prefetch + 3) * largest;
      run_virtual_ranks(4, Config{}, [&](Communicator& world) {
        ShardedModel model(world, unit_specs(), options_of(job));
        if (degree == 1 || prefetch == 0) {
          EXPECT_EQ(model.bytes_held(), kept);
        }
        for (int step = 0; step < 2; ++step) {
          train_step(model, job, world.rank(), step, noisy);
          model.step(learning_rate);
        }
        EXPECT_LE(model.bytes_high_water(), kept + lent) << "degree " << degree;
        EXPECT_LE(model.bytes_held(), model.bytes_high_water());
      });
    }
  }
}

TEST(ShardedModel, a_gradient_that_is_not_finite_skips_the_step_on_every_rank) {
  const Gradient broken = [](const GradientKey& at) {
    const bool here = at.rank == 2 && at.step == 1 && at.unit == 1 && at.element == 5;
    return here ? std::numeric_limits<float>::infinity() : noisy(at);
  };
  for (const int degree : {1, 2, 4}) {
    const Job job{.ranks = 4, .degree = degree};
    run_virtual_ranks(4, Config{}, [&](Communicator& world) {
      ShardedModel model(world, unit_specs(), options_of(job));
      Values before;
      for (int step = 0; step < 3; ++step) {
        before = read_parameters(model);
        train_step(model, job, world.rank(), step, broken);
        const StepResult result = model.step(learning_rate);
        EXPECT_EQ(result.skipped, step == 1) << "rank " << world.rank();
        EXPECT_EQ(read_parameters(model) == before, step == 1) << "rank " << world.rank();
      }
    });
  }
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(ShardedModel, broken_contracts_are_refused_by_name) {
  run_virtual_ranks(2, Config{}, [](Communicator& world) {
    EXPECT_EQ(message_of([&] { ShardedModel(world, unit_specs(), options_of({.degree = 3})); }),
              "hybrid_shard_degree 3 does not divide the 2 ranks of the world; allowed: 1, 2");
    ShardedModel model(world, unit_specs(), options_of({.degree = 2}));
    EXPECT_STREQ(model.strategy().name, "zero3");
    EXPECT_EQ(model.parameter_count(), 101 * 64 + 17 + 2 * (65 * 33 + 33) + 1500 + 1);
    EXPECT_EQ(message_of([&] { model.parameter(1, 0); }),
              "parameter(1, 0) of unit \"block0\", which is not acquired; acquire() it first");
    EXPECT_EQ(message_of([&] { model.acquire(2); }),
              "acquire(2) is out of the declared order: expected \"embed\", got \"block1\"");
    EXPECT_EQ(message_of([&] { model.gradient(3, 0); }), "there is no unit 3; units are 0 to 2");
    EXPECT_EQ(message_of([&] { model.gradient(0, 2); }),
              "unit \"embed\" has no parameter 2; it has 2");
    EXPECT_EQ(message_of([&] { model.step(0.1f); }), "step() before reduce() of unit \"embed\"");
    model.reduce(0);
    EXPECT_EQ(message_of([&] { model.reduce(0); }),
              "reduce() of unit \"embed\" a second time before step()");
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
}  // namespace sprat
