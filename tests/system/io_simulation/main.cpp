// The simulation as a program: test_io_simulation --seeds FIRST..LAST [--scenario NAME] prints for
// each scenario how near its runs came to the bound and to an ideal reader; with --sentences in the
// place of --seeds, for how many runs the report says what limits. Else it is a GoogleTest program.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "tests/system/io_simulation/scenarios.hpp"
#include "tests/system/io_simulation/sentences.hpp"

namespace {

using namespace sprat::io_simulation;

void print_shares(const char* of, std::vector<double> shares, const char* remark) {
  std::ranges::sort(shares);
  std::printf("%17s%s: min %.3f, p5 %.3f, median %.3f; below 0.9: %td%s\n", "", of, shares.front(),
              shares[shares.size() / 20], shares[shares.size() / 2],
              std::ranges::count_if(shares, [](double share) { return share < 0.9; }), remark);
}

/// Whether all of them held what io_simulation_test.cpp asks of each.
bool run_scenario_seeds(const Scenario& scenario, std::uint64_t first, std::uint64_t last) {
  std::vector<double> ratios, of_ideal;
  int faults = 0;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    const RunSetup setup = draw(scenario, seed);
    const RunResult result = run_reading(setup);
    const bool well = !result.stuck && !result.failure && result.wrong_batches == 0 &&
                      result.batches == setup.batches.size() &&
                      result.most_budget_used <= setup.scheduler.budget_bytes;
    if (!well) {
      ++faults;
      std::printf("%-15.*s seed %llu FAILED\n", static_cast<int>(scenario.name.size()),
                  scenario.name.data(), static_cast<unsigned long long>(seed));
    }
    ratios.push_back(least_seconds(setup) / result.seconds);
    of_ideal.push_back(seconds_in_order(setup) / result.seconds);
    if (scenario.bounded && ratios.back() > 1) {
      ++faults;
      std::printf("seed %llu beats the bound: %.4f\n", static_cast<unsigned long long>(seed),
                  ratios.back());
    }
  }
  std::printf("%-15.*s  runs %zu, faults %d\n", static_cast<int>(scenario.name.size()),
              scenario.name.data(), ratios.size(), faults);
  print_shares("least/taken", ratios, scenario.bounded ? "" : " (no bound)");
  print_shares("ideal in order/taken", of_ideal, scenario.bounded ? "" : " (knows no archive)");
  std::fflush(stdout);
  return faults == 0;
}

/// Whether the sentence is right in 95 of 100 runs.
bool tell_sentences(const LimitKind& kind, std::uint64_t first, std::uint64_t last) {
  std::uint64_t right = 0;
  std::string wrong;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    const Judgement judgement = judge(kind, seed);
    right += judgement.right ? 1 : 0;
    wrong += judgement.right ? "" : "  " + std::to_string(seed) + ": " + judgement.sentence + "\n";
  }
  const std::uint64_t runs = last - first + 1;
  std::printf("%-20.*s %llu of %llu right\n%s", static_cast<int>(kind.name.size()),
              kind.name.data(), static_cast<unsigned long long>(right),
              static_cast<unsigned long long>(runs), wrong.c_str());
  std::fflush(stdout);
  return right * 100 >= runs * 95;
}

/// Whether another limit than computing was named in 1 of 100 runs at most.
bool tell_false_alarms(std::uint64_t first, std::uint64_t last) {
  std::uint64_t alarms = 0;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    const Judgement judgement = judge(healthy_run(), seed);
    const bool alarm =
        !judgement.named.empty() && judgement.named != std::set{sprat::io::Limit::compute};
    alarms += alarm ? 1 : 0;
    if (alarm) {
      std::printf("  %llu: %s\n", static_cast<unsigned long long>(seed),
                  judgement.sentence.c_str());
    }
  }
  std::printf("healthy: %llu false alarms in %llu\n", static_cast<unsigned long long>(alarms),
              static_cast<unsigned long long>(last - first + 1));
  return alarms * 100 <= last - first + 1;
}

bool tell_all_sentences(std::uint64_t first, std::uint64_t last, const std::string& only) {
  bool well = true;
  for (const auto& kinds : {limited_runs(), twice_limited_runs()}) {
    for (const LimitKind& kind : kinds) {
      if (only.empty() || kind.name == only) {
        well = tell_sentences(kind, first, last) && well;
      }
    }
  }
  return (only.empty() || only == "healthy" ? tell_false_alarms(first, last) : true) && well;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 2 || (arguments[0] != "--seeds" && arguments[0] != "--sentences")) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
  }
  const std::string& range = arguments[1];
  const std::size_t dots = range.find("..");
  const std::uint64_t first = std::strtoull(range.c_str(), nullptr, 10);
  const std::uint64_t last =
      dots == std::string::npos ? first : std::strtoull(range.c_str() + dots + 2, nullptr, 10);
  const std::string only =
      arguments.size() >= 4 && arguments[2] == "--scenario" ? arguments[3] : "";
  if (arguments[0] == "--sentences") {
    return tell_all_sentences(first, last, only) ? 0 : 1;
  }
  bool well = true;
  for (const Scenario& scenario : scenarios()) {
    if (only.empty() || scenario.name == only) {
      well = run_scenario_seeds(scenario, first, last) && well;
    }
  }
  return well ? 0 : 1;
}
