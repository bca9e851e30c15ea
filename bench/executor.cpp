// What a small collective costs inside one process: the executor's own time, without other
// processes and their scheduling.
#include <benchmark/benchmark.h>

#include <utility>
#include <vector>

#include "sprat/communicator.hpp"

namespace {

using namespace sprat;

/// Arguments: ranks as threads, bytes.
void all_reduce(benchmark::State& state) {
  const auto ranks = static_cast<int>(state.range(0));
  const std::size_t count = static_cast<std::size_t>(state.range(1)) / sizeof(float);
  run_virtual_ranks(ranks, Config(), [&](Communicator& world) {
    const std::vector<float> in(count, 1);
    std::vector<float> out(count);
    const auto call = [&] {
      world.all_reduce(elements(in), elements(out), ReduceOp::sum, {.blocking = true}).wait();
    };
    call();  // makes the plan
    if (world.rank() == 0) {
      for (auto _ : state) {
        call();
      }
    } else {
      for (benchmark::IterationCount i = 0; i < state.max_iterations; ++i) {
        call();
      }
    }
  });
  state.SetBytesProcessed(state.iterations() * state.range(1));
}
BENCHMARK(all_reduce)->ArgsProduct({{1, 2}, {8, 4096, 65536}})->UseRealTime();

}  // namespace
