// Arithmetic kernels against memcpy: bytes read and written a second, one thread.
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "collectives/kernels/reduce.hpp"

namespace {

using namespace sprat;
using namespace sprat::collectives;

constexpr std::int64_t KiB = 1024, MiB = 1024 * KiB;

/// Memory whose pages exist, holding ones in any float's reading as small numbers.
std::vector<std::byte> touched(std::size_t bytes) {
  return std::vector<std::byte>(bytes, std::byte{0x3c});
}

void copy(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const std::vector<std::byte> from = touched(bytes);
  std::vector<std::byte> to = touched(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * 2 * state.range(0));
}
BENCHMARK(copy)->Arg(64 * KiB)->Arg(64 * MiB);

/// Arguments: bytes of one contribution, contributions.
void reduce_terms(benchmark::State& state, DType dtype, ReduceOp op) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const int ranks = static_cast<int>(state.range(1));
  std::vector<std::vector<std::byte>> contributions;
  std::vector<Term> terms;
  for (int rank = 0; rank < ranks; ++rank) {
    contributions.push_back(touched(bytes));
    terms.push_back({contributions.back().data(), {rank, rank + 1}, false});
  }
  std::vector<std::byte> to = touched(bytes);
  const Arithmetic arithmetic = {.input = dtype, .output = dtype, .op = op, .ranks = ranks};
  for (auto _ : state) {
    reduce(arithmetic, terms, to.data(), bytes / size_of(dtype));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * (ranks + 1) * state.range(0));
}

#define SPRAT_BENCH_REDUCE(dtype, op)                                       \
  BENCHMARK_CAPTURE(reduce_terms, op##_##dtype, DType::dtype, ReduceOp::op) \
      ->ArgsProduct(                                                        \
          {{static_cast<std::int64_t>(size_of(DType::dtype)), 64 * KiB, 64 * MiB}, {2, 3, 8}})
SPRAT_BENCH_REDUCE(f32, sum);
SPRAT_BENCH_REDUCE(f32, avg);
SPRAT_BENCH_REDUCE(f32, max);
SPRAT_BENCH_REDUCE(bf16, sum);
SPRAT_BENCH_REDUCE(f16, sum);
SPRAT_BENCH_REDUCE(f8e4m3, sum);
SPRAT_BENCH_REDUCE(i32, land);
SPRAT_BENCH_REDUCE(i8, prod);
SPRAT_BENCH_REDUCE(i32, avg);
#undef SPRAT_BENCH_REDUCE

}  // namespace
