// Replicas that are threads of one process, each in jobs of its own, which come and go by
// themselves:
//   test_replicas ROUNDS [REPLICAS] [SEED]
// Each round one of them ends in the midst of the others' work: it leaves, or aborts. The others
// shrink, and grow by the one that is made in its place. Every sum is checked. Ends with 0 if all
// were right and no descriptor is left, with 3 on a wrong sum.
#include <dirent.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/base/hash.hpp"
#include "sprat/communicator.hpp"
#include "tests/unit/comm/bootstrap/map_store.hpp"

namespace {

using namespace std::chrono_literals;
using sprat::elements;

int open_descriptors() {
  int count = 0;
  if (DIR* folder = opendir("/proc/self/fd")) {
    while (readdir(folder) != nullptr) {
      ++count;
    }
    closedir(folder);
  }
  return count;
}

sprat::Config config_of(int rank, int size) {
  sprat::Config config;
  config.rank = rank;
  config.size = size;
  config.timeout = config.join_timeout = 60s;
  config.log_level = "off";  // each loss would be a line
  return config;
}

/// Ends the process on a wrong sum: nobody shall go on with it.
void expect_right(sprat::Communicator& group, std::uint64_t round) {
  constexpr std::size_t counts[] = {1, 500, 30'000};
  const std::size_t count = counts[round % std::size(counts)];
  const auto rank = static_cast<std::uint64_t>(group.rank());
  const auto size = static_cast<std::uint64_t>(group.size());
  std::vector<std::uint64_t> data(count, round * 100 + rank);
  group.all_reduce(elements(data)).wait();
  const std::uint64_t sum = size * round * 100 + size * (size - 1) / 2;
  if (std::any_of(data.begin(), data.end(), [&](std::uint64_t value) { return value != sum; })) {
    std::fprintf(stderr, "rank %llu of %llu: a wrong sum in round %llu\n",
                 static_cast<unsigned long long>(rank), static_cast<unsigned long long>(size),
                 static_cast<unsigned long long>(round));
    std::_Exit(3);
  }
}

/// The same on all replicas of a round.
struct Fate {
  int victim;
  bool aborts;
  std::uint64_t sums;  ///< Before it ends.

  Fate(std::uint64_t seed, std::uint64_t round, int size) {
    std::uint64_t state = seed * 1'000'003 + round;
    const auto draw = [&] { return sprat::mix_bits(state += sprat::golden_step); };
    victim = static_cast<int>(draw() % static_cast<std::uint64_t>(size));
    aborts = draw() % 4 != 0;  // who leaves is missed after a second
    // At least one: who has done it knows that all others have heard which round it is.
    sums = 1 + draw() % 30;
  }
};

class Replicas final {
 public:
  Replicas(std::uint64_t rounds, int size, std::uint64_t seed)
      : rounds_(rounds), size_(size), seed_(seed) {}

  void run() {
    for (int rank = 0; rank < size_; ++rank) {
      threads_.emplace_back([this, rank] {
        sprat::comm::MapStore store(map_);
        live(sprat::Communicator::join(config_of(rank, size_), store), store);
      });
    }
    for (std::uint64_t round = 0; round < rounds_; ++round) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ended_ > round; });
      threads_.emplace_back([this] {
        sprat::comm::MapStore store(map_);
        live(sprat::Communicator::join_growing(config_of(-1, -1), store), store);
      });
    }
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }

 private:
  void live(sprat::Communicator world, sprat::Store& store) {
    for (std::uint64_t round = 0;; ++round) {
      // Who has just come does not know how often the others have grown.
      world.all_reduce(elements(std::span(&round, 1)), sprat::ReduceOp::max).wait();
      const Fate fate(seed_, round, size_);
      if (round == rounds_) {
        return world.barrier();
      }
      if (world.rank() == fate.victim) {
        for (std::uint64_t sum = 0; sum < fate.sums; ++sum) {
          expect_right(world, sum);
        }
        return end(std::move(world), fate);
      }
      work_until_one_ends(world);
      world = world.shrink(size_ - 1);
      for (std::uint64_t sum = 0; sum < 5; ++sum) {
        expect_right(world, sum);
      }
      world = world.grow(1, store);
    }
  }

  void end(sprat::Communicator world, const Fate& fate) {
    if (fate.aborts) {
      world.abort("a replica has had enough");
    }
    const std::lock_guard lock(mutex_);
    ++ended_;
    changed_.notify_all();
  }

  void work_until_one_ends(sprat::Communicator& world) {
    try {
      for (std::uint64_t sum = 0;; ++sum) {
        expect_right(world, sum);
      }
    } catch (const sprat::Error& error) {
      const bool known =
          error.code() == sprat::ErrorCode::aborted || error.code() == sprat::ErrorCode::lost_peer;
      if (!known) {
        throw;
      }
    }
  }

  const std::uint64_t rounds_;
  const int size_;
  const std::uint64_t seed_;
  sprat::comm::SharedMap map_;
  std::deque<std::thread> threads_;  ///< The main thread's.
  std::mutex mutex_;                 ///< Guards ended_.
  std::condition_variable changed_;
  std::uint64_t ended_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto number = [&](std::size_t index, std::uint64_t usual) {
    return arguments.size() > index ? std::stoull(arguments[index]) : usual;
  };
  const std::uint64_t rounds = number(0, 5);
  // What the first job opens for the whole process stays.
  Replicas(0, 2, 1).run();
  const int before = open_descriptors();
  const auto begin = std::chrono::steady_clock::now();
  Replicas(rounds, static_cast<int>(number(1, 3)), number(2, 1)).run();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  const int after = open_descriptors();
  std::printf("%llu replicas made, ended and made again in %.1f s; descriptors %d, then %d\n",
              static_cast<unsigned long long>(rounds), seconds.count(), before, after);
  return after > before ? 1 : 0;
}
