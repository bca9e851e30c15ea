// What an exact sum of squares costs beside one that rounds, a plain read of the same memory, and
// the update that follows it in a step. Argument: elements.
#include "sprat/square_sum.hpp"

#include <benchmark/benchmark.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "fsdp/optimizer.hpp"

namespace {

using namespace sprat;

constexpr std::int64_t in_cache = 4096, in_memory = 16 * 1024 * 1024;

std::vector<float> gradients(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 1e-4f);
  for (float& value : values) {
    value = normal(random);
  }
  return values;
}

/// Of every size that there is: the most levels.
std::vector<float> any_bits(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::mt19937 random(1);
  for (float& value : values) {
    do {
      value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    } while (!std::isfinite(value));
  }
  return values;
}

void report(benchmark::State& state) {
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void read(benchmark::State& state) {
  const std::vector<float> values = gradients(state.range(0));
  for (auto _ : state) {
    std::array<std::uint32_t, 32> sums{};
    for (std::size_t i = 0; i < values.size(); i += sums.size()) {
      for (std::size_t lane = 0; lane < sums.size(); ++lane) {
        sums[lane] += std::bit_cast<std::uint32_t>(values[i + lane]);
      }
    }
    benchmark::DoNotOptimize(sums);
  }
  report(state);
}
BENCHMARK(read)->Arg(in_cache)->Arg(in_memory);

void squares_rounded(benchmark::State& state) {
  const std::vector<float> values = gradients(state.range(0));
  for (auto _ : state) {
    std::array<double, 16> sums{};
    for (std::size_t i = 0; i < values.size(); i += sums.size()) {
      for (std::size_t lane = 0; lane < sums.size(); ++lane) {
        const double value = double{values[i + lane]};
        sums[lane] += value * value;
      }
    }
    benchmark::DoNotOptimize(sums);
  }
  report(state);
}
BENCHMARK(squares_rounded)->Arg(in_cache)->Arg(in_memory);

void squares_exact(benchmark::State& state, std::vector<float> (*make)(std::int64_t)) {
  const std::vector<float> values = make(state.range(0));
  for (auto _ : state) {
    SquareSum sum;
    sum.add(values);
    benchmark::DoNotOptimize(sum);
  }
  report(state);
}
BENCHMARK_CAPTURE(squares_exact, gradients, gradients)->Arg(in_cache)->Arg(in_memory);
BENCHMARK_CAPTURE(squares_exact, any_bits, any_bits)->Arg(in_cache)->Arg(in_memory);

void adamw(benchmark::State& state) {
  std::vector<float> values = gradients(state.range(0));
  std::vector<float> parameters = values, first(values.size()), second(values.size());
  const std::array<std::span<float>, 2> states = {first, second};
  const auto optimizer = fsdp::make_optimizer({"adamw", {}});
  optimizer->begin_step(1, 1e-3f, 1);
  for (auto _ : state) {
    optimizer->update(true, {.parameters = parameters, .gradients = values, .states = states});
    benchmark::ClobberMemory();
  }
  report(state);
}
BENCHMARK(adamw)->Arg(in_cache)->Arg(in_memory);

}  // namespace
