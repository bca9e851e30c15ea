// The simulation as a program:
// test_simulation [--seeds FIRST..LAST | --seed N [--trace] | --control-plane RANKS].
// Without arguments it is a GoogleTest program.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tests/system/simulation/control_plane.hpp"
#include "tests/system/simulation/job.hpp"
#include "tests/system/simulation/scenario.hpp"
#include "tests/system/simulation/seeds.hpp"

namespace {

int run_one(std::uint64_t seed, bool trace) {
  const auto scenario = sprat::simulation::draw_scenario(seed);
  std::printf("%s\n", describe(scenario).c_str());
  const auto verdict = run_scenario(scenario, trace);
  std::printf("%s; %llu turns, %.6f virtual seconds, digest %016llx\n",
              verdict.complaint.empty() ? "well" : ("FAILED: " + verdict.complaint).c_str(),
              static_cast<unsigned long long>(verdict.turns), verdict.virtual_seconds,
              static_cast<unsigned long long>(verdict.digest));
  std::fflush(stdout);
  return verdict.complaint.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto has = [&](std::string_view option) {
    return std::find(arguments.begin(), arguments.end(), option) != arguments.end();
  };
  if (arguments.size() >= 2 && arguments[0] == "--seed") {
    _exit(run_one(std::strtoull(arguments[1].c_str(), nullptr, 10), has("--trace")));
  }
  if (arguments.size() >= 2 && arguments[0] == "--seeds") {
    const std::string& range = arguments[1];
    const std::uint64_t first = std::strtoull(range.c_str(), nullptr, 10);
    const std::size_t dots = range.find("..");
    const std::uint64_t last =
        dots == std::string::npos ? first : std::strtoull(range.c_str() + dots + 2, nullptr, 10);
    return sprat::simulation::run_seeds(first, last, !has("--all"), argv[0]) == 0 ? 0 : 1;
  }
  if (arguments.size() >= 2 && arguments[0] == "--control-plane") {
    sprat::simulation::print_control_plane(std::atoi(arguments[1].c_str()));
    return 0;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
