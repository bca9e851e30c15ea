// What a thread waits that posts while a large call is under way:
// mpirun -np 2 sprat_bench_posts [MIB] [CALLS]
//
// CALLS (20) all_reduces of MIB (1024) are carried out, one after the other; a thread of each rank
// waits for it. Meanwhile another one posts 100 all_reduces of 8 bytes, half a millisecond apart:
// in half of the calls on the same communicator, and waits for them at the end; in the others on a
// second one, and waits for each. Only posts that return while the large call is under way count.
// Shown are, of the slowest rank, microseconds in the call that posts and, on the second one, until
// it is done; and of as many posts while nothing else is under way. Every sum is checked.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "sprat/communicator.hpp"

namespace {

using namespace sprat;
using Clock = std::chrono::steady_clock;

constexpr int posts = 100;
constexpr std::chrono::microseconds pause{500};

double since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

void expect_sums(const std::vector<float>& data, int ranks, const char* what) {
  if (!std::ranges::all_of(data, [&](float sum) { return sum == static_cast<float>(ranks); })) {
    throw Error(ErrorCode::internal, std::string("a sum of ") + what + " is wrong");
  }
}

/// Microseconds that one rank's posts took, and until those were done that it waited for.
struct Times {
  std::vector<double> posting, whole;
};

/// Posts while `large` is under way; every rank posts as often.
void post(Communicator& comm, bool waits_for_each, const Work* large, Times& times) {
  std::vector<std::vector<float>> data(posts, {1, 1});
  std::vector<Work> works;
  for (std::vector<float>& own : data) {
    const auto begin = Clock::now();
    works.push_back(comm.all_reduce(elements(own)));
    const double posting = since(begin);
    const bool counts = large == nullptr || !large->done();
    if (waits_for_each) {
      works.back().wait();
    }
    if (counts) {
      times.posting.push_back(posting);
    }
    if (counts && waits_for_each) {
      times.whole.push_back(since(begin));
    }
    std::this_thread::sleep_for(pause);
  }
  for (std::size_t i = 0; i < works.size(); ++i) {
    works[i].wait();
    expect_sums(data[i], comm.size(), "8 bytes");
  }
}

/// One large call with posts beside it. Microseconds until it was done.
double post_beside(Communicator& world, Communicator& posted, bool waits_for_each,
                   std::vector<float>& data, Times& times) {
  std::ranges::fill(data, 1.0f);
  world.barrier();
  const auto begin = Clock::now();
  Work large = world.all_reduce(elements(data));
  double took = 0;
  std::jthread waiter([&, waited = large]() mutable {
    try {
      waited.wait();
    } catch (const Error&) {
      return;  // the other thread hears of it, too
    }
    took = since(begin);
  });
  post(posted, waits_for_each, &large, times);
  waiter.join();
  large.wait();
  expect_sums(data, world.size(), "the large call");
  return took;
}

/// The slowest rank's value at a share of its times.
double at(Communicator& world, std::vector<double> times, double share) {
  std::ranges::sort(times);
  const auto place = static_cast<std::size_t>(share * static_cast<double>(times.size()));
  std::vector<double> value = {times.empty() ? 0 : times[std::min(place, times.size() - 1)]};
  world.all_reduce(elements(value), ReduceOp::max).wait();
  return value[0];
}

void show(Communicator& world, const char* what, const std::vector<double>& times) {
  const double median = at(world, times, 0.5), p99 = at(world, times, 0.99),
               most = at(world, times, 1);
  if (world.rank() == 0) {
    std::printf("%-52s %6zu %9.1f %9.1f %9.1f\n", what, times.size(), median, p99, most);
  }
}

void measure(Communicator& world, std::size_t mib, int calls) {
  Communicator second = world.duplicate("second");
  std::vector<float> data(mib * (1 << 20) / sizeof(float));
  Times same, other, same_alone, other_alone;
  std::vector<double> large;
  for (int call = 0; call < calls; ++call) {
    const bool on_second = call % 2 == 1;
    large.push_back(
        post_beside(world, on_second ? second : world, on_second, data, on_second ? other : same));
    post(on_second ? second : world, on_second, nullptr, on_second ? other_alone : same_alone);
  }
  if (world.rank() == 0) {
    std::printf("%d ranks, beside all_reduces of %zu MiB\n%-52s %6s %9s %9s %9s\n", world.size(),
                mib, "us", "number", "median", "p99", "most");
  }
  show(world, "a post on the same communicator", same.posting);
  show(world, "  nothing else under way", same_alone.posting);
  show(world, "a post on a second communicator", other.posting);
  show(world, "  nothing else under way", other_alone.posting);
  show(world, "a post on a second communicator, until it is done", other.whole);
  show(world, "  nothing else under way", other_alone.whole);
  show(world, "the large call", large);
}

}  // namespace

int main(int argc, char** argv) {
  const int mib = argc > 1 ? std::atoi(argv[1]) : 1024, calls = argc > 2 ? std::atoi(argv[2]) : 20;
  try {
    auto world = Communicator::join();
    if (mib < 1 || calls < 2) {
      std::fprintf(stderr, "sprat_bench_posts: needs at least 1 MiB and two calls\n");
      return 2;
    }
    measure(world, static_cast<std::size_t>(mib), calls);
  } catch (const Error& error) {
    std::fprintf(stderr, "sprat_bench_posts: %s\n", error.what());
    return 1;
  }
}
