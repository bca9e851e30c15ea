// How long it takes to make the plan of one rank, for every algorithm.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "collectives/plan/algorithm.hpp"
#include "collectives/plan/planner.hpp"

namespace sprat::collectives {
namespace {

/// `ranks` ranks, eight to a host.
std::shared_ptr<const Grouping> grouping_of(int ranks) {
  std::vector<int> host_of;
  for (int rank = 0; rank < ranks; ++rank) {
    host_of.push_back(rank / 8);
  }
  return std::make_shared<Grouping>(host_of);
}

void make_one_plan(benchmark::State& state, const Algorithm& algorithm, const Problem& problem) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(make_plan(problem, algorithm));
  }
}

[[maybe_unused]] const bool registered = [] {
  for (const Algorithm* algorithm : all_algorithms()) {
    for (int ranks : {8, 64, 256}) {
      const Problem problem{.collective = algorithm->collective,
                            .rank = 3,
                            .grouping = grouping_of(ranks),
                            .count = 1 << 20};
      if (algorithm->fits(problem)) {
        const std::string label = std::string("plan/") + name(algorithm->collective) + "/" +
                                  algorithm->name + "/" + std::to_string(ranks);
        benchmark::RegisterBenchmark(label.c_str(), [algorithm, problem](benchmark::State& state) {
          make_one_plan(state, *algorithm, problem);
        });
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace sprat::collectives
