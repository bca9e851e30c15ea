#include "tests/system/simulation/seeds.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>

#include "tests/system/simulation/job.hpp"
#include "tests/system/simulation/scenario.hpp"

namespace sprat::simulation {
namespace {

// A run takes milliseconds; one that does not give its thread back is ended.
constexpr unsigned longest_seconds = 60;

/// In a child: 0 if the seed is well, and what fails otherwise on standard output.
[[noreturn]] void run_and_exit(std::uint64_t seed, const std::string& program) {
  alarm(longest_seconds);
  const Scenario scenario = draw_scenario(seed);
  const Verdict verdict = run_scenario(scenario, false);
  if (!verdict.complaint.empty()) {
    std::printf("FAILED %s: %s\n  replay: %s --seed %llu --trace\n", describe(scenario).c_str(),
                verdict.complaint.c_str(), program.c_str(), static_cast<unsigned long long>(seed));
    std::fflush(stdout);
  }
  _exit(verdict.complaint.empty() ? 0 : 1);
}

}  // namespace

int run_seeds(std::uint64_t first, std::uint64_t last, bool stop_at_failure,
              const std::string& program) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  int failed = 0;
  std::uint64_t ran = 0;
  for (std::uint64_t seed = first; seed <= last && !(stop_at_failure && failed > 0); ++seed) {
    ++ran;
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      run_and_exit(seed, program);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) {
      ++failed;
    }
    if (WIFSIGNALED(status) || WEXITSTATUS(status) > 1) {
      const bool late = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
      std::printf("FAILED %s: it %s\n  replay: %s --seed %llu --trace\n",
                  describe(draw_scenario(seed)).c_str(),
                  late ? "had not ended after a minute" : "crashed", program.c_str(),
                  static_cast<unsigned long long>(seed));
    }
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  std::printf("%llu seeds from %llu, %d failed, %.1f s\n", static_cast<unsigned long long>(ran),
              static_cast<unsigned long long>(first), failed, seconds);
  std::fflush(stdout);
  return failed;
}

}  // namespace sprat::simulation
