// What communicators cost: mpirun -np 4 sprat_bench_groups [NUMBER]
//
// Makes NUMBER (64) communicators of all ranks each way, uses each once, and shows the time and
// what a rank's memory grew by, its own and what it shares: per communicator, and per peer of one.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "sprat/communicator.hpp"

namespace {

using sprat::Communicator;

/// KiB of this process in memory, without mapped files.
long resident_kib() {
  std::ifstream status("/proc/self/status");
  long total = 0;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:") || line.starts_with("RssShmem:")) {
      total += std::strtol(line.c_str() + line.find(':') + 1, nullptr, 10);
    }
  }
  return total;
}

void measure(Communicator& world, const char* how, int number,
             const std::function<Communicator(int)>& make) {
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
  };
  world.barrier();
  const long before = resident_kib();
  const auto begin = Clock::now();
  std::vector<Communicator> made;
  for (int i = 0; i < number; ++i) {
    made.push_back(make(i));
  }
  world.barrier();
  const double making = seconds(begin);
  const long idle = resident_kib();
  const auto first_use = Clock::now();
  for (Communicator& one : made) {
    std::vector<float> data(2, 1.0f);
    one.all_reduce(sprat::elements(data)).wait();
  }
  world.barrier();
  const double using_once = seconds(first_use);
  const long used = resident_kib();
  const auto peers = static_cast<double>(world.size() - 1);
  const auto each = [&](long kib) { return static_cast<double>(kib - before) / number; };
  if (world.rank() == 0) {
    std::printf(
        "%-12s %5d made in %7.3f s, used once in %7.3f s; idle %6.1f KiB each, %5.1f a peer; "
        "after use %6.1f KiB each, %5.1f a peer\n",
        how, number, making, using_once, each(idle), each(idle) / peers, each(used),
        each(used) / peers);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int number = argc > 1 ? std::atoi(argv[1]) : 64;
  try {
    auto world = Communicator::join();
    if (world.size() < 2 || number < 1) {
      std::fprintf(stderr, "sprat_bench_groups: needs two ranks and a positive number\n");
      return 2;
    }
    std::vector<int> all(static_cast<std::size_t>(world.size()));
    std::iota(all.begin(), all.end(), 0);
    measure(world, "split", number, [&](int) { return *world.split(0); });
    measure(world, "duplicate", number, [&](int) { return world.duplicate(); });
    measure(world, "create_group", number,
            [&](int i) { return world.create_group(all, "group " + std::to_string(i)); });
  } catch (const sprat::Error& error) {
    std::fprintf(stderr, "sprat_bench_groups: %s\n", error.what());
    return 1;
  }
}
