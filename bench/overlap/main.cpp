// How much of an all_reduce hides behind computation: sprat_bench_overlap [BYTES [SAMPLES]]
//
// Computes as long as the all_reduce takes, on every rank at once, first each by itself, then both
// together: hidden = (Tcompute + Tcomm - Tboth) / min(Tcompute, Tcomm - CPU time of Tcomm), for
// what the all_reduce needs of a core cannot be hidden on it. Between hosts:
//   tests/system/hosts/run 4 1 --rate 1gbit -- build/release/bin/sprat_bench_overlap 16777216
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "sprat/communicator.hpp"

namespace {

using sprat::Communicator;

/// Seconds of cores that this process has used.
double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Work in registers.
void compute(long rounds) {
  volatile float sink = 0;
  float a = 1.0f, b = 0.5f;
  for (long round = 0; round < rounds; ++round) {
    a = a * 0.999f + b;
    b = b * 0.998f + a * 0.001f;
  }
  sink = a + b;
  static_cast<void>(sink);
}

/// The mean over ranks.
double agreed(Communicator& world, double value) {
  world.all_reduce(sprat::elements(std::span(&value, 1)), sprat::ReduceOp::avg).wait();
  return value;
}

struct Times {
  double wall = 0, cpu = 0;
};

class Overlap {
 public:
  Overlap(Communicator& world, std::size_t bytes)
      : world_(world), data_(bytes / sizeof(float), 0.0f) {}

  Times measure(const std::function<void()>& body) {
    world_.barrier();
    const double cpu = cpu_seconds();
    const auto begin = std::chrono::steady_clock::now();
    body();
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
    return {agreed(world_, wall.count()), agreed(world_, cpu_seconds() - cpu)};
  }
  Times communicate() {
    return measure([this] { start().wait(); });
  }
  Times compute_alone(long rounds) {
    return measure([rounds] { compute(rounds); });
  }
  Times both(long rounds) {
    return measure([this, rounds] {
      sprat::Work work = start();
      compute(rounds);
      work.wait();
    });
  }

 private:
  sprat::Work start() { return world_.all_reduce(sprat::elements(data_)); }

  Communicator& world_;
  std::vector<float> data_;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void run(Communicator& world, std::size_t bytes, int samples) {
  Overlap overlap(world, bytes);
  overlap.communicate();  // warms up
  const double wanted = overlap.communicate().wall;
  long rounds = 1'000'000;
  for (int attempt = 0; attempt < 4; ++attempt) {
    rounds = std::max(1L, static_cast<long>(static_cast<double>(rounds) * wanted /
                                            overlap.compute_alone(rounds).wall));
  }
  std::vector<double> comm, cpu, alone, both, hidden;
  for (int sample = 0; sample < samples; ++sample) {
    const Times talk = overlap.communicate();
    const Times work = overlap.compute_alone(rounds);
    const Times together = overlap.both(rounds);
    comm.push_back(talk.wall);
    cpu.push_back(talk.cpu);
    alone.push_back(work.wall);
    both.push_back(together.wall);
    hidden.push_back((work.wall + talk.wall - together.wall) /
                     std::min(work.wall, talk.wall - talk.cpu));
  }
  if (world.rank() == 0) {
    std::printf("all_reduce of %zu bytes, %d ranks, medians of %d samples\n", bytes, world.size(),
                samples);
    std::printf("Tcomm %.3f ms (CPU time %.3f ms), Tcompute %.3f ms, Tboth %.3f ms, hidden %.2f\n",
                1e3 * median(comm), 1e3 * median(cpu), 1e3 * median(alone), 1e3 * median(both),
                median(hidden));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const long bytes = argc > 1 ? std::atol(argv[1]) : 16L << 20;
  const int samples = argc > 2 ? std::atoi(argv[2]) : 15;
  try {
    auto world = Communicator::join();
    if (bytes < 4 || samples < 1) {
      std::fprintf(stderr, "sprat_bench_overlap: needs 4 bytes or more and a positive number\n");
      return 2;
    }
    run(world, static_cast<std::size_t>(bytes), samples);
  } catch (const sprat::Error& error) {
    std::fprintf(stderr, "sprat_bench_overlap: %s\n", error.what());
    return 1;
  }
}
