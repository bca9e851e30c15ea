// Pipelines that run against pipelines that are simulated. Ranks are threads of this process.
//
//   sprat_bench_pipeline clock         stages that wait by clock: says how well engine and schedule
//                                      do, nothing of speed
//   sprat_bench_pipeline compute       matrix products of fixed size, two ranks
//   sprat_bench_pipeline shared        four ranks on two cores, the simulator told so
//   sprat_bench_pipeline zero_bubble   zero_bubble_h1 against 1f1b, two ranks, in turns
//
// Computation is measured right before each step, by as many ranks at once as there are cores for
// them, and put into the simulator. Each line has the medians of what ran and what was simulated,
// and of their ratio, step by step.
#include <fmt/core.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "mp/simulate.hpp"
#include "sprat/mp.hpp"
#include "sprat/pipeline.hpp"

namespace {

using namespace sprat;
using Clock = std::chrono::steady_clock;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Three thirds of the work of a micro-batch: forward, gradient of the input, of the weights.
class ThirdsStages : public PipelineStages {
 public:
  explicit ThirdsStages(int stages) : stages_(stages) {}

  static constexpr std::size_t elements = 32768;  ///< Of a message.
  std::size_t most_elements(int stage) const final { return stage + 1 == stages_ ? 0 : elements; }
  std::size_t forward(int, int, std::span<const float>, std::span<float> output) final {
    third();
    std::ranges::fill(output, 1.0f);
    return output.size();
  }
  void backward(int, int, std::span<const float>, std::span<float> gradient) final {
    third();
    std::ranges::fill(gradient, 1.0f);
    third();
  }
  void backward_input(int, int, std::span<const float>, std::span<float> gradient) final {
    third();
    std::ranges::fill(gradient, 1.0f);
  }
  void backward_weight(int, int) final { third(); }

  virtual void third() = 0;

 private:
  int stages_;
};

class WaitingStages final : public ThirdsStages {
 public:
  WaitingStages(int stages, double seconds)
      : ThirdsStages(stages), nanoseconds_(long(seconds * 1e9)) {}

  void third() override {
    const timespec rest{.tv_sec = 0, .tv_nsec = nanoseconds_};
    nanosleep(&rest, nullptr);
  }

 private:
  long nanoseconds_;
};

class MultiplyingStages final : public ThirdsStages {
 public:
  MultiplyingStages(int stages, std::shared_ptr<const GemmBackend> gemm)
      : ThirdsStages(stages),
        gemm_(std::move(gemm)),
        a_(std::size_t(width) * width, 0.5f),
        b_(a_),
        c_(a_) {}

  void third() override {
    for (int i = 0; i < products; ++i) {
      gemm_->multiply({.rows = width,
                       .columns = width,
                       .inner = width,
                       .a = {.data = a_.data(), .stride = width},
                       .b = {.data = b_.data(), .stride = width},
                       .out = {.data = c_.data(), .stride = width}});
    }
  }

 private:
  static constexpr int width = 384, products = 4;
  std::shared_ptr<const GemmBackend> gemm_;
  std::vector<float> a_, b_, c_;
};

/// Seconds of a forward and of the two halves of a backward.
struct Thirds {
  double forward = 0, input = 0, weight = 0;
};

/// Of ranks 0 to `busy` - 1 that compute at the same time; medians.
Thirds measured_thirds(Communicator& world, ThirdsStages& stages, int busy, int repeats) {
  std::vector<float> from(ThirdsStages::elements), to(ThirdsStages::elements);
  const std::vector<std::function<void()>> parts = {
      [&] { stages.forward(0, 0, from, to); },
      [&] { stages.backward_input(0, 0, from, to); },
      [&] { stages.backward_weight(0, 0); },
  };
  std::vector<std::vector<double>> seconds(parts.size());
  world.barrier();
  for (int i = 0; i < repeats; ++i) {
    for (std::size_t part = 0; part < parts.size(); ++part) {
      const auto begin = Clock::now();
      if (world.rank() < busy) {
        parts[part]();
      }
      seconds[part].push_back(seconds_since(begin));
    }
  }
  std::vector<double> medians;
  for (const auto& part : seconds) {
    const std::vector<double> mine{median(part)};
    std::vector<double> all(std::size_t(world.size()));
    world.all_gather(sprat::elements(mine), sprat::elements(all)).wait();
    all.resize(std::size_t(busy));
    medians.push_back(median(all));
  }
  return {.forward = medians[0], .input = medians[1], .weight = medians[2]};
}

double simulated(const mp::Schedule& schedule, const Thirds& thirds, int cores) {
  mp::PipelineCosts costs = uniform_costs(schedule, {.forward = thirds.forward,
                                                     .backward_input = thirds.input,
                                                     .backward_weight = thirds.weight});
  costs.cores = cores;
  return simulate(schedule, costs).makespan;
}

mp::Schedule made(const std::string& kind, int ranks, int microbatches, int active = 0) {
  return mp::make_schedule(
      {.kind = kind,
       .shape = {.ranks = ranks, .microbatches = microbatches, .active_microbatches = active}});
}

/// Makespan of one step, the same on every rank.
double one_step(Communicator& world, Pipeline& pipeline) {
  world.barrier();
  pipeline.run();
  return pipeline.timeline().makespan;
}

void print_line(Communicator& world, const std::string& what, double ran, double planned,
                double ratio) {
  if (world.rank() == 0) {
    fmt::print("{:<32} ran {:8.1f} ms   simulated {:8.1f} ms   {:+5.1f} %\n", what, ran * 1e3,
               planned * 1e3, (ratio - 1) * 100);
  }
}

/// The median step of a schedule, beside what was planned for it.
void compare(Communicator& world, const mp::Schedule& schedule, ThirdsStages& stages,
             const std::string& what, double planned, int steps) {
  Pipeline pipeline(world, schedule, stages);
  std::vector<double> seconds;
  one_step(world, pipeline);  // makes its memory
  for (int i = 0; i < steps; ++i) {
    seconds.push_back(one_step(world, pipeline));
  }
  print_line(world, what, median(seconds), planned, median(seconds) / planned);
}

void wait_by_clock(Communicator& world) {
  constexpr double third = 6e-3;
  WaitingStages stages(world.size(), third);
  for (const int active : {1, 2, 3, 4, 6, 16}) {
    const mp::Schedule schedule = made("interleaved", world.size(), 16, active);
    compare(world, schedule, stages, fmt::format("waits by clock, active {}", active),
            simulated(schedule, {third, third, third}, 0), 5);
  }
}

/// Steps that ran, and what the simulator made of the rates that were measured right before each:
/// those of a virtual machine's cores change from second to second.
struct Turns {
  std::vector<double> ran, planned;
  double ratio() const {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < ran.size(); ++i) {
      ratios.push_back(ran[i] / planned[i]);
    }
    return median(ratios);
  }
};

void print_line(Communicator& world, const std::string& what, const Turns& turns) {
  print_line(world, what, median(turns.ran), median(turns.planned), turns.ratio());
}

constexpr int measures = 5;  // in a turn

void compute(Communicator& world, MultiplyingStages& stages, int cores) {
  constexpr int turns = 31;
  for (const char* kind : {"gpipe", "1f1b", "interleaved", "zero_bubble_h1"}) {
    const mp::Schedule schedule = made(kind, world.size(), 8);
    Pipeline pipeline(world, schedule, stages);
    one_step(world, pipeline);  // makes its memory
    Turns both;
    for (int i = 0; i < turns; ++i) {
      const Thirds thirds = measured_thirds(world, stages, std::min(world.size(), cores), measures);
      both.planned.push_back(simulated(schedule, thirds, cores));
      both.ran.push_back(one_step(world, pipeline));
    }
    print_line(world, fmt::format("{}, {} ranks", kind, world.size()), both);
  }
}

/// Both in turns, so that whatever else the machine does meets both.
void zero_bubble(Communicator& world, MultiplyingStages& stages) {
  constexpr int turns = 30;
  for (const int microbatches : {4, 8}) {
    const mp::Schedule plain = made("1f1b", world.size(), microbatches),
                       split = made("zero_bubble_h1", world.size(), microbatches);
    Pipeline first(world, plain, stages), second(world, split, stages);
    one_step(world, first), one_step(world, second);
    Turns plains, splits, ratios;
    for (int i = 0; i < turns; ++i) {
      const Thirds thirds = measured_thirds(world, stages, world.size(), measures);
      plains.planned.push_back(simulated(plain, thirds, 0));
      splits.planned.push_back(simulated(split, thirds, 0));
      plains.ran.push_back(one_step(world, first));
      splits.ran.push_back(one_step(world, second));
      ratios.planned.push_back(splits.planned.back() / plains.planned.back());
      ratios.ran.push_back(splits.ran.back() / plains.ran.back());
    }
    print_line(world, fmt::format("1f1b, m = {}", microbatches), plains);
    print_line(world, fmt::format("zero_bubble_h1, m = {}", microbatches), splits);
    if (world.rank() == 0) {
      fmt::print("{:<32} ran {:8.4f}      simulated {:8.4f}      {:+5.1f} %\n",
                 fmt::format("zero_bubble_h1 / 1f1b, m = {}", microbatches), median(ratios.ran),
                 median(ratios.planned), (ratios.ratio() - 1) * 100);
    }
  }
}

/// The system may leave two threads that compute on one core while another is idle.
void pin_to_core(int core) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

void run_on(int ranks, const std::function<void(Communicator&, MultiplyingStages&)>& body) {
  const auto gemm = open_gemm_backend(choose_gemm_backend());
  run_virtual_ranks(ranks, Config{}, [&](Communicator& world) {
    MultiplyingStages stages(ranks, gemm);
    body(world, stages);
  });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Pipelines that run against pipelines that are simulated.");
  app.require_subcommand(1);
  app.add_subcommand("clock", "Stages that wait by clock: engine and schedule, not speed")
      ->callback([] { run_virtual_ranks(4, Config{}, wait_by_clock); });
  app.add_subcommand("compute", "Two ranks that compute, a core each")->callback([] {
    run_on(2, [](Communicator& world, MultiplyingStages& stages) {
      pin_to_core(world.rank());
      compute(world, stages, 2);
    });
  });
  app.add_subcommand("shared", "Four ranks that compute on two cores")->callback([] {
    run_on(4, [](Communicator& world, MultiplyingStages& stages) { compute(world, stages, 2); });
  });
  app.add_subcommand("zero_bubble", "Two schedules in turns, two ranks")->callback([] {
    run_on(2, zero_bubble);
  });
  CLI11_PARSE(app, argc, argv);
}
