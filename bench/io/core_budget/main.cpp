// How much decoding slows reductions on this machine, and what the budget of cores does about it:
//   sprat_bench_core_budget [BYTES [SECONDS [DECODERS]]]      1 MiB, 20 s, 2 threads a rank
//
// Two ranks, threads of this process, all_reduce one after the other as a step of training does,
// with a pause of as long as it takes in which others compute. Three phases, in turns: nobody
// decodes; all decoders burn, as without a budget; all burn as far as the budget lets them.
// "measured" is the quotient of the medians of whole phases; "said" is what the budget itself says,
// from what it saw.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "io/cores/core_budget.hpp"
#include "sprat/communicator.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using sprat::io::CoreBudget;

enum class Phase { quiet, free, governed, over };

double median(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

/// A record's worth of work in registers, about a millisecond.
void decode_record() {
  volatile float sink = 0;
  float a = 1.0f, b = 0.5f;
  for (int round = 0; round < 200'000; ++round) {
    a = a * 0.999f + b;
    b = b * 0.998f + a * 0.001f;
  }
  sink = a + b;
  static_cast<void>(sink);
}

/// What the ranks have in common.
struct Run {
  std::size_t bytes = 1 << 20;
  double seconds = 20;
  int decoders = 2;
  std::atomic<Phase> phase{Phase::quiet};
  std::atomic<std::uint64_t> records{0};
};

/// Burns while the phase has it so.
void decode(Run& run, CoreBudget& budget) {
  CoreBudget::Member member(budget, CoreBudget::Role::decodes);
  while (run.phase.load() != Phase::over) {
    const Phase phase = run.phase.load();
    const bool may = phase == Phase::free || (phase == Phase::governed && member.may_decode());
    if (!may) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    const CoreBudget::Decoding decoding(budget);
    decode_record();
    ++run.records;
  }
}

struct PhaseResult {
  double seconds = 0;  ///< Of an all_reduce, the median.
  double records_per_second = 0;
  sprat::io::CoreUse use;
};

/// One phase of one rank.
PhaseResult measure(sprat::Communicator& world, Run& run, CoreBudget& budget, Phase phase,
                    double length) {
  world.barrier();
  run.phase = phase;
  const std::uint64_t records = run.records;
  std::vector<float> gradient(run.bytes / sizeof(float), 1.0f);
  std::vector<double> times;
  PhaseResult result;
  const auto begin = Clock::now();
  auto observed = begin;
  double passed = 0;
  while (passed < length) {
    const auto start = Clock::now();
    world.all_reduce(sprat::elements(gradient), sprat::ReduceOp::avg).wait();
    const auto took = Clock::now() - start;
    budget.note_reduction(took, run.bytes);
    times.push_back(std::chrono::duration<double>(took).count());
    // The rest of a step: this rank's thread computes nothing, as where a GPU does.
    std::this_thread::sleep_for(took);
    const auto now = Clock::now();
    if (now - observed >= std::chrono::seconds(1)) {
      result.use = budget.observe(0);
      observed = now;
    }
    // Both ranks leave in the same step.
    passed = std::chrono::duration<double>(now - begin).count();
    world.all_reduce(sprat::elements(std::span(&passed, 1)), sprat::ReduceOp::max).wait();
  }
  result.seconds = median(times);
  result.records_per_second = static_cast<double>(run.records - records) / passed;
  return result;
}

void print(const char* name, const PhaseResult& result) {
  std::printf("%-28s all_reduce %8.3f ms   decoded %7.0f records/s   decoders %d%s\n", name,
              1e3 * result.seconds, result.records_per_second, result.use.decision.decoders,
              result.use.decision.give_way ? ", of low priority" : "");
}

/// All phases of one rank, in turns, and what rank 0 says of them.
void run_rank(sprat::Communicator& world, Run& run) {
  CoreBudget budget({.cores = 1, .read_threads = 1, .decode_threads = run.decoders});
  std::vector<std::thread> threads;
  for (int thread = 0; thread < run.decoders; ++thread) {
    threads.emplace_back([&] { decode(run, budget); });
  }
  constexpr int turns = 3;
  std::vector<double> quiet, free;
  PhaseResult last_quiet, last_free;
  for (int turn = 0; turn < turns; ++turn) {
    last_quiet = measure(world, run, budget, Phase::quiet, run.seconds / (3 * turns));
    last_free = measure(world, run, budget, Phase::free, run.seconds / (3 * turns));
    quiet.push_back(last_quiet.seconds);
    free.push_back(last_free.seconds);
  }
  const sprat::io::CoreUse seen = budget.observe(0);
  const PhaseResult governed = measure(world, run, budget, Phase::governed, run.seconds);
  world.barrier();
  run.phase = Phase::over;
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (world.rank() != 0) {
    return;
  }
  std::printf("all_reduce of %zu bytes, 2 ranks, %d decoders each\n", run.bytes, run.decoders);
  print("nobody decodes", last_quiet);
  print("all decode", last_free);
  print("all decode under the budget", governed);
  const double measured = median(free) / median(quiet) - 1;
  std::printf("preprocessing slows all_reduce by %.0f %% (measured)\n", 100 * measured);
  if (seen.slowdown) {
    std::printf("preprocessing slows all_reduce by %.0f %% (said by the budget)\n",
                100 * *seen.slowdown);
  } else {
    std::printf("the budget saw too few reductions to say how much\n");
  }
  std::printf("under the budget it slows it by %.0f %%\n",
              100 * (governed.seconds / median(quiet) - 1));
}

}  // namespace

int main(int argc, char** argv) {
  Run run;
  if (argc > 1) {
    run.bytes = static_cast<std::size_t>(std::atoll(argv[1]));
  }
  if (argc > 2) {
    run.seconds = std::atof(argv[2]);
  }
  if (argc > 3) {
    run.decoders = std::atoi(argv[3]);
  }
  if (run.bytes < sizeof(float) || run.seconds <= 0 || run.decoders < 1) {
    std::fprintf(stderr, "sprat_bench_core_budget [BYTES [SECONDS [DECODERS]]]\n");
    return 2;
  }
  sprat::run_virtual_ranks(2, sprat::Config::from_environment(),
                           [&](sprat::Communicator& world) { run_rank(world, run); });
  return 0;
}
