// What fusion gains: mpirun -np 2 sprat_bench_fusion [gpt2|biases|NUMBERxCOUNT] [SAMPLES]
//
// Averages the gradients of a model (gpt2: the 148 parameters of GPT-2 small, f32; biases: those of
// them that have one dimension) in six ways, one after the other in each of SAMPLES (15) rounds:
// the medians of each, and of its ratio to Fusion in the same round. Every element is checked after
// every sample. A sample is the slowest rank's mean over a batch of steps of at least a
// millisecond.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "sprat/fusion.hpp"

namespace {

using namespace sprat;
using Clock = std::chrono::steady_clock;
using Counts = std::vector<std::size_t>;

/// In the order in which backward has them ready: from the last layer to the first.
Counts gpt2(bool matrices) {
  constexpr std::size_t width = 768, layers = 12, vocabulary = 50257, context = 1024;
  Counts counts = {width, width};  // ln_f
  const auto linear = [&](std::size_t in, std::size_t out) {
    counts.push_back(out);
    if (matrices) {
      counts.push_back(in * out);
    }
  };
  for (std::size_t layer = 0; layer < layers; ++layer) {
    linear(4 * width, width);
    linear(width, 4 * width);
    counts.insert(counts.end(), {width, width});  // ln_2
    linear(width, width);
    linear(width, 3 * width);
    counts.insert(counts.end(), {width, width});  // ln_1
  }
  if (matrices) {
    counts.insert(counts.end(), {context * width, vocabulary * width});
  }
  return counts;
}

Counts counts_of(const std::string& what) {
  if (what == "gpt2" || what == "biases") {
    return gpt2(what == "gpt2");
  }
  unsigned long number = 0, count = 0;
  if (std::sscanf(what.c_str(), "%lux%lu", &number, &count) != 2 || number == 0) {
    throw Error(ErrorCode::invalid_argument,
                "no parameters \"" + what + "\"; there are gpt2, biases and NUMBERxCOUNT");
  }
  return Counts(number, count);
}

/// One way to average: where the gradients lie, and what a step is.
struct Way {
  const char* name;
  std::vector<Elements> gradients;
  std::function<void()> step;
  std::vector<double> seconds = {};
};

/// Whole numbers whose mean over ranks is whole, so that averages of averages stay exact.
float value(std::size_t index, float shift) { return static_cast<float>(index % 13) + shift; }

void fill(const Way& way, float shift) {
  for (const Elements& gradient : way.gradients) {
    auto* const data = static_cast<float*>(gradient.data);
    for (std::size_t i = 0; i < gradient.count; ++i) {
      data[i] = value(i, shift);
    }
  }
}

void check(const Way& way) {
  for (const Elements& gradient : way.gradients) {
    const auto* const data = static_cast<const float*>(gradient.data);
    for (std::size_t i = 0; i < gradient.count; ++i) {
      if (data[i] != value(i, 0)) {
        throw Error(ErrorCode::internal, std::string(way.name) + ": element " + std::to_string(i) +
                                             " is " + std::to_string(data[i]));
      }
    }
  }
}

/// The slowest rank's seconds for one step, over a batch of `steps`.
double sample(Communicator& world, const Way& way, long steps) {
  fill(way, static_cast<float>(2 * world.rank() - world.size() + 1));
  world.barrier();
  const auto begin = Clock::now();
  for (long step = 0; step < steps; ++step) {
    way.step();
  }
  double seconds =
      std::chrono::duration<double>(Clock::now() - begin).count() / static_cast<double>(steps);
  check(way);
  world.all_reduce({&seconds, 1, DType::f64}, ReduceOp::max).wait();
  return seconds;
}

void measure(Communicator& world, std::vector<Way>& ways, int samples) {
  std::vector<long> steps;
  for (const Way& way : ways) {
    sample(world, way, 1);
    steps.push_back(1 + static_cast<long>(1e-3 / sample(world, way, 1)));
  }
  for (int round = 0; round < samples; ++round) {
    for (std::size_t index = 0; index < ways.size(); ++index) {
      ways[index].seconds.push_back(sample(world, ways[index], steps[index]));
    }
  }
}

struct Quartiles {
  double low, median, high;
};
Quartiles quartiles(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t last = values.size() - 1;
  return {values[last / 4], values[last / 2], values[last - last / 4]};
}

Quartiles ratio(const Way& way, const Way& to) {
  std::vector<double> ratios(way.seconds.size());
  std::ranges::transform(way.seconds, to.seconds, ratios.begin(), std::divides());
  return quartiles(std::move(ratios));
}

void report(const std::vector<Way>& ways, const Way& put, const Way& slots) {
  std::printf("%-42s %9s %19s %22s %22s\n", "# microseconds a step", "median", "quartiles",
              "/ fused, put", "/ fused, in its slots");
  for (const Way& way : ways) {
    const Quartiles time = quartiles(way.seconds);
    const Quartiles to_put = ratio(way, put), to_slots = ratio(way, slots);
    std::printf("%-42s %9.1f %9.1f-%9.1f %8.2f (%5.2f-%5.2f) %8.2f (%5.2f-%5.2f)\n", way.name,
                1e6 * time.median, 1e6 * time.low, 1e6 * time.high, to_put.median, to_put.low,
                to_put.high, to_slots.median, to_slots.low, to_slots.high);
  }
}

/// `counts` elements each, one after the other, every one on a line of its own.
std::vector<Elements> cut(float* memory, const Counts& counts) {
  std::vector<Elements> gradients;
  for (const std::size_t count : counts) {
    gradients.push_back({memory, count, DType::f32});
    memory += (count + 31) / 32 * 32;
  }
  return gradients;
}

void all_reduce_each(Communicator& world, const std::vector<Elements>& gradients) {
  std::vector<Work> works;
  for (const Elements& gradient : gradients) {
    works.push_back(world.all_reduce(gradient, ReduceOp::avg));
  }
  all_of(std::move(works)).wait();
}

void fuse(Fusion& fusion, const std::vector<Elements>& gradients) {
  for (std::size_t index = 0; index < gradients.size(); ++index) {
    fusion.put(index, gradients[index]);
  }
  fusion.flush();
}

void run(Communicator& world, const Counts& counts, int samples) {
  std::vector<FusionParameter> parameters;
  for (const std::size_t count : counts) {
    parameters.push_back({count, DType::f32});
  }
  const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  Fusion fusion(world, parameters, {.op = ReduceOp::avg});
  Fusion small(world, parameters, {.bucket_bytes = 1 << 20, .op = ReduceOp::avg});
  std::vector<float> memory(total + 32 * counts.size());
  const Memory shared = allocate<float>(memory.size());
  const auto own = cut(memory.data(), counts), seen = cut(shared.as<float>().data(), counts);
  const std::vector<Elements> whole = {{shared.data(), total, DType::f32}};
  std::vector<Elements> slots;
  for (std::size_t index = 0; index < counts.size(); ++index) {
    slots.push_back(fusion.slot(index));
  }
  std::vector<Way> ways = {
      {"one all_reduce each, private memory", own, [&] { all_reduce_each(world, own); }},
      {"one all_reduce each, shared memory", seen, [&] { all_reduce_each(world, seen); }},
      {"fused, put: copied in and out", own, [&] { fuse(fusion, own); }},
      {"fused, put, buckets of 1 MiB", own, [&] { fuse(small, own); }},
      {"fused, in its slots", slots, [&] { fuse(fusion, slots); }},
      {"one all_reduce of all, shared memory", whole, [&] { all_reduce_each(world, whole); }},
  };
  measure(world, ways, samples);
  if (world.rank() == 0) {
    std::printf("# %d ranks, %zu parameters, %.3f MiB of f32, %d samples\n", world.size(),
                counts.size(), static_cast<double>(total) * 4 / (1 << 20), samples);
    report(ways, ways[2], ways[4]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int samples = argc > 2 ? std::atoi(argv[2]) : 15;
  try {
    const Counts counts = counts_of(argc > 1 ? argv[1] : "gpt2");
    auto world = Communicator::join();
    if (samples < 1) {
      throw Error(ErrorCode::invalid_argument, "SAMPLES must be positive");
    }
    run(world, counts, samples);
  } catch (const Error& error) {
    std::fprintf(stderr, "sprat_bench_fusion: %s\n", error.what());
    return 1;
  }
}
