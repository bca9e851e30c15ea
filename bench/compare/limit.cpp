// The machine's limit: threads that read and write what a collective must, on the same pages, and
// do not wait for each other. Copies and sums by plain or by non-temporal stores; compare.py takes
// the faster. One process: compare_limit SOCKET THREADS [nt]; it is "limit" or, with nt,
// "limit_nt".
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "bench/compare/driver.hpp"

namespace {

using compare::Cell;
using compare::Collective;

/// What all threads share: each rank's buffers, by rank.
struct Shared {
  explicit Shared(int ranks) : cells(static_cast<std::size_t>(ranks)), meeting(ranks) {}
  std::vector<Cell> cells;
  std::barrier<> meeting;
};

#if defined(__AVX512F__)
using Vector = __m512;
Vector load(const float* from) { return _mm512_loadu_ps(from); }
Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
void store(float* to, Vector v) { _mm512_storeu_ps(to, v); }
void stream(float* to, Vector v) { _mm512_stream_ps(to, v); }
#else
using Vector = __m128;
Vector load(const float* from) { return _mm_loadu_ps(from); }
Vector add(Vector a, Vector b) { return _mm_add_ps(a, b); }
void store(float* to, Vector v) { _mm_storeu_ps(to, v); }
void stream(float* to, Vector v) { _mm_stream_ps(to, v); }
#endif
constexpr std::size_t lane = sizeof(Vector) / sizeof(float);

/// Each of `to` gets the sum of all of `from`.
template <bool past_cache>
void sum(const std::vector<const float*>& from, const std::vector<float*>& to, std::size_t count) {
  const bool aligned = std::all_of(to.begin(), to.end(), [](const float* one) {
    return reinterpret_cast<std::uintptr_t>(one) % sizeof(Vector) == 0;
  });
  std::size_t i = 0;
  for (; i + lane <= count; i += lane) {
    Vector total = load(from[0] + i);
    for (std::size_t j = 1; j < from.size(); ++j) {
      total = add(total, load(from[j] + i));
    }
    for (float* one : to) {
      if (past_cache && aligned) {
        stream(one + i, total);
      } else {
        store(one + i, total);
      }
    }
  }
  for (; i < count; ++i) {
    float total = 0;
    for (const float* one : from) {
      total += one[i];
    }
    for (float* one : to) {
      one[i] = total;
    }
  }
  if (past_cache) {
    _mm_sfence();
  }
}

class Limit final : public compare::Library {
 public:
  Limit(Shared& shared, int its_rank, int ranks, bool past_cache)
      : Library(past_cache ? "limit_nt" : "limit", its_rank, ranks),
        shared_(shared),
        past_cache_(past_cache) {}

  float* allocate(std::size_t bytes, const std::string& kind) override {
    return Library::allocate(bytes, kind == "shared" ? "huge" : kind);
  }
  void prepare(const Cell& cell) override {
    shared_.cells[static_cast<std::size_t>(rank)] = cell;
    shared_.meeting.arrive_and_wait();
  }
  void barrier() override { shared_.meeting.arrive_and_wait(); }
  void call(const Cell& cell, int root) override {
    if (past_cache_) {
      move<true>(cell, root);
    } else {
      move<false>(cell, root);
    }
  }

 private:
  template <bool past_cache>
  void move(const Cell& cell, int root) {
    const auto& all = shared_.cells;
    const auto me = static_cast<std::size_t>(rank), ranks = static_cast<std::size_t>(size);
    std::vector<const float*> from;
    std::vector<float*> to;
    switch (cell.collective) {
      case Collective::all_reduce: {
        const std::size_t begin = cell.in * me / ranks / lane * lane;
        const std::size_t end =
            me + 1 == ranks ? cell.in : cell.in * (me + 1) / ranks / lane * lane;
        for (const Cell& one : all) {
          from.push_back(one.input + begin);
          to.push_back(one.output + begin);
        }
        sum<past_cache>(from, to, end - begin);
        return;
      }
      case Collective::reduce_scatter:
        for (const Cell& one : all) {
          from.push_back(one.input + me * cell.block);
        }
        sum<past_cache>(from, {cell.output}, cell.block);
        return;
      case Collective::all_gather:
        for (std::size_t peer = 0; peer < ranks; ++peer) {
          sum<past_cache>({all[peer].input}, {cell.output + peer * cell.block}, cell.block);
        }
        return;
      case Collective::send_recv:
        sum<past_cache>({all[static_cast<std::size_t>(previous())].input}, {cell.output},
                        cell.block);
        return;
      case Collective::all_to_all:
      case Collective::all_to_allv:
        for (std::size_t peer = 0; peer < ranks; ++peer) {
          sum<past_cache>({all[peer].input + me * cell.block}, {cell.output + peer * cell.block},
                          cell.block);
        }
        return;
      case Collective::broadcast:
        if (rank != root) {
          sum<past_cache>({all[static_cast<std::size_t>(root)].output}, {cell.output}, cell.block);
        }
        return;
      case Collective::barrier:
        return;
    }
  }

  Shared& shared_;
  const bool past_cache_;
};

void pin(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  pthread_setaffinity_np(pthread_self(), sizeof cores, &cores);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    return 2;
  }
  const int ranks = std::atoi(argv[2]);
  const bool past_cache = argc > 3 && std::strcmp(argv[3], "nt") == 0;
  Shared shared(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      pin(rank % static_cast<int>(std::thread::hardware_concurrency()));
      Limit library(shared, rank, ranks, past_cache);
      compare::serve(library, argv[1]);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}
