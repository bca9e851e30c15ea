// Random collectives for a while, every result checked, on several communicators of several
// threads:
//   test_soak SECONDS [VIRTUAL_RANKS] [HOSTS]
// Without VIRTUAL_RANKS it joins the job it was launched in. Ends with 0 if nothing was wrong and
// neither memory nor descriptors grew after the first quarter; prints one line a rank.
#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "sprat/communicator.hpp"

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Values = std::vector<float>;

constexpr int threads_a_rank = 2;
constexpr int communicators_a_thread = 3;

struct Usage {
  long resident_kib = 0;
  int descriptors = 0;
};

Usage usage_now() {
  Usage usage;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) {
      usage.resident_kib = std::atol(line.c_str() + 6);
    }
  }
  if (DIR* folder = opendir("/proc/self/fd")) {
    while (readdir(folder) != nullptr) {
      ++usage.descriptors;
    }
    closedir(folder);
  }
  return usage;
}

/// What rank `rank` contributes to element `i` of operation `number`: small whole numbers, so that
/// every order of summing gives the same float.
float value(std::uint64_t number, int rank, std::size_t i) {
  return static_cast<float>((number * 31 + static_cast<std::uint64_t>(rank) * 17 + i) % 101);
}

void fill(Values& data, std::uint64_t number, int rank, std::size_t first = 0) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    data[i] = value(number, rank, first + i);
  }
}

/// One thread's operations on one communicator. Every rank draws the same ones.
class Player {
 public:
  Player(sprat::Communicator communicator, std::uint32_t seed)
      : ranks_(std::move(communicator)), random_(seed) {}

  /// Starts one operation, or does one that blocks.
  void start() {
    ++number_;
    const std::size_t count = draw_count();
    const int root = static_cast<int>(random_() % static_cast<unsigned>(ranks_.size()));
    const auto size = static_cast<std::size_t>(ranks_.size());
    const int me = ranks_.rank();
    kind_ = random_() % 8;
    root_ = root;
    switch (kind_) {
      case 0:
        in_.assign(count, 0);
        fill(in_, number_, me);
        out_ = in_;
        work_ = ranks_.all_reduce(sprat::elements(out_));
        break;
      case 1:
        in_.assign(count, 0);
        fill(in_, number_, me);
        out_.assign(count * size, -1);
        work_ = ranks_.all_gather(sprat::elements(in_), sprat::elements(out_));
        break;
      case 2:
        in_.assign(count * size, 0);
        fill(in_, number_, me);
        out_.assign(count, -1);
        work_ = ranks_.reduce_scatter(sprat::elements(in_), sprat::elements(out_));
        break;
      case 3:
        out_.assign(count, -1);
        if (me == root) {
          fill(out_, number_, root);
        }
        work_ = ranks_.broadcast(sprat::elements(out_), root);
        break;
      case 4:
        in_.assign(count * size, 0);
        fill(in_, number_, me);
        out_.assign(count * size, -1);
        work_ = ranks_.all_to_all(sprat::elements(in_), sprat::elements(out_));
        break;
      case 5:
        ranks_.barrier();
        out_.clear();
        break;
      default: {  // to the next rank; every other one does not say whom it expects
        in_.assign(count, 0);
        fill(in_, number_, me);
        out_.assign(count, -1);
        const int next = (me + 1) % ranks_.size(), last = (me + ranks_.size() - 1) % ranks_.size();
        const int tag = static_cast<int>(number_ % 1000);
        std::vector<sprat::Work> both;
        both.push_back(ranks_.send(sprat::elements(in_), next, tag));
        both.push_back(
            ranks_.recv(sprat::elements(out_), kind_ == 6 ? last : sprat::any_source, tag));
        work_ = sprat::all_of(std::move(both));
      }
    }
  }

  /// Waits for it; how many elements are wrong.
  std::size_t finish() {
    work_.wait();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < out_.size(); ++i) {
      wrong += out_[i] != expected(i) ? 1 : 0;
    }
    return wrong;
  }

 private:
  std::size_t draw_count() {
    constexpr std::size_t usual[] = {0, 1, 7, 64, 500, 4'000, 30'000};
    return usual[random_() % std::size(usual)] + random_() % 3;
  }

  float expected(std::size_t i) const {
    const int size = ranks_.size(), me = ranks_.rank();
    float sum = 0;
    switch (kind_) {
      case 0:
        for (int rank = 0; rank < size; ++rank) {
          sum += value(number_, rank, i);
        }
        return sum;
      case 1: {
        const std::size_t count = out_.size() / static_cast<std::size_t>(size);
        return value(number_, static_cast<int>(i / count), i % count);
      }
      case 2:
        for (int rank = 0; rank < size; ++rank) {
          sum += value(number_, rank, static_cast<std::size_t>(me) * out_.size() + i);
        }
        return sum;
      case 3:
        return value(number_, root_, i);
      case 4: {
        const std::size_t count = out_.size() / static_cast<std::size_t>(size);
        return value(number_, static_cast<int>(i / count),
                     static_cast<std::size_t>(me) * count + i % count);
      }
      default:
        return value(number_, (me + size - 1) % size, i);
    }
  }

  sprat::Communicator ranks_;
  std::mt19937 random_;
  std::uint64_t number_ = 0;
  unsigned kind_ = 0;
  int root_ = 0;
  Values in_, out_;
  sprat::Work work_;
};

struct Tally {
  std::atomic<std::uint64_t> operations = 0, wrong = 0;
};

/// Plays rounds until rank 0 of its first communicator says that time is up.
void play(std::vector<Player>& players, sprat::Communicator& clock, Clock::time_point end,
          Tally& tally) {
  for (float going_on = 1; going_on != 0;) {
    for (int round = 0; round < 20; ++round) {
      for (Player& player : players) {
        player.start();
      }
      for (Player& player : players) {
        tally.wrong += player.finish();
        ++tally.operations;
      }
    }
    Values decision = {Clock::now() < end ? 1.0f : 0.0f};
    clock.broadcast(sprat::elements(decision), 0).wait();
    going_on = decision[0];
  }
}

/// Ranks may be threads of one process.
Usage usage_when_idle(sprat::Communicator& world) {
  world.barrier();
  const Usage usage = usage_now();
  world.barrier();
  return usage;
}

std::size_t run_rank(sprat::Communicator& world, std::chrono::seconds duration) {
  Tally tally;
  const auto begin = Clock::now();
  const auto phase = [&](Clock::time_point end) {
    std::vector<std::vector<Player>> players(threads_a_rank);
    std::vector<sprat::Communicator> clocks;
    for (int thread = 0; thread < threads_a_rank; ++thread) {
      clocks.push_back(world.duplicate());
      for (int i = 0; i < communicators_a_thread; ++i) {
        players[static_cast<std::size_t>(thread)].emplace_back(
            world.duplicate(), static_cast<std::uint32_t>(100 * thread + i));
      }
    }
    std::vector<std::thread> threads;
    for (std::size_t thread = 0; thread < threads_a_rank; ++thread) {
      threads.emplace_back([&, thread] { play(players[thread], clocks[thread], end, tally); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  };
  phase(begin + duration / 4);
  const Usage before = usage_when_idle(world);
  phase(begin + duration / 2);
  phase(begin + duration);
  const Usage after = usage_when_idle(world);
  std::printf(
      "rank %d: %lu operations, %lu wrong elements, %ld KiB and %d descriptors, then %ld KiB and "
      "%d\n",
      world.rank(), static_cast<unsigned long>(tally.operations),
      static_cast<unsigned long>(tally.wrong), before.resident_kib, before.descriptors,
      after.resident_kib, after.descriptors);
  std::fflush(stdout);
  // Buffers differ in length from round to round: malloc may keep a little more or less.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr long slack_kib = 1 << 20;  // sanitizers keep what was freed, and notes of every access
#else
  constexpr long slack_kib = 16 << 10;
#endif
  const bool grew = after.resident_kib > before.resident_kib + slack_kib ||
                    after.descriptors > before.descriptors + 4;
  return tally.wrong + (grew ? 1 : 0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: test_soak SECONDS [VIRTUAL_RANKS] [HOSTS]\n");
    return 2;
  }
  const std::chrono::seconds duration(std::atoi(argv[1]));
  try {
    std::atomic<std::size_t> faults = 0;
    if (argc > 2) {
      auto config = sprat::Config::from_environment();
      config.host = argc > 3 ? argv[3] : "";
      sprat::run_virtual_ranks(std::atoi(argv[2]), config, [&](sprat::Communicator& world) {
        faults += run_rank(world, duration);
      });
    } else {
      auto world = sprat::Communicator::join();
      faults += run_rank(world, duration);
    }
    return faults == 0 ? 0 : 1;
  } catch (const sprat::Error& error) {
    std::fprintf(stderr, "test_soak: %s: %s\n", sprat::name(error.code()), error.what());
    return 1;
  }
}
