// How much of what tensor parallel layers exchange hides behind their products. Run by mpirun or,
// between hosts, by
//   tests/system/hosts/run 2 1 --rate 1gbit -- build/release/bin/sprat_bench_tensor --trace t.json
//
// The layers are those of an MLP, forward and backward. A pass is measured as the library does it,
// with all rows in one piece, and one after the other: whole exchanges, whole products. These take
// turns, and results are compared element by element, before and after. What is drawn is the run of
// median time: each letter is a product, each digit rows under way, from call to end. Rank r
// computes on core r mod cores.
#include <fmt/core.h>
#include <sched.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "bench/tensor/passes.hpp"
#include "bench/tensor/trace.hpp"
#include "comm/base/check.hpp"

namespace {

using namespace sprat;
using bench::Pass;
using bench::RankSpans;

struct Request {
  int rows = 1024, width = 1024, samples = 15, chunk_kib = 512, chunk_rows = 256;
  bool every_row = false;  // on every rank: no sequence parallelism
  std::string trace;
};

/// The order of samples by time; the one in the middle.
std::size_t middle_of(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return values[i]; });
  return order[order.size() / 2];
}
double median(const std::vector<double>& values) { return values[middle_of(values)]; }

struct Sample {
  double seconds;  // the slowest rank's
  RankSpans spans;
};

/// Times of one pass, a value a sample.
struct Times {
  std::vector<double> layer, one_piece, in_order, products, exchanges;
  std::vector<RankSpans> spans;  // of `layer`
};

class Measurement {
 public:
  Measurement(Communicator& world, const bench::WatchedGemm& gemm) : world_(world), gemm_(gemm) {}

  void sample(const Pass& pass, Times& times) {
    Sample layer = timed(pass.layer);
    times.layer.push_back(layer.seconds);
    times.spans.push_back(std::move(layer.spans));
    times.one_piece.push_back(timed(pass.one_piece).seconds);
    times.in_order.push_back(timed([&] { run(pass, true, true); }).seconds);
    times.products.push_back(timed([&] { run(pass, true, false); }).seconds);
    times.exchanges.push_back(timed([&] { run(pass, false, true); }).seconds);
  }

 private:
  static void run(const Pass& pass, bool products, bool exchanges) {
    for (const bench::Part& part : pass.parts) {
      if (part.travels ? exchanges : products) {
        part.run();
      }
    }
  }

  Sample timed(const std::function<void()>& body) {
    world_.barrier();
    gemm_.take();
    const double begin = bench::now();
    body();
    const double end = bench::now();
    double seconds = end - begin;
    world_.all_reduce(elements(std::span(&seconds, 1)), ReduceOp::max).wait();
    return {.seconds = seconds,
            .spans = bench::from(begin, {.multiplies = gemm_.take(),
                                         .travels = bench::collectives_between(begin, end)})};
  }

  Communicator& world_;
  const bench::WatchedGemm& gemm_;
};

void print_row(const Pass& pass, const Times& times, double hidden) {
  const double products = median(times.products), exchanges = median(times.exchanges),
               layer = median(times.layer);
  fmt::print(
      "| {:<39} | {:>8.1f} | {:>8.1f} | {:>8.1f} | {:>8.1f} | {:>8.1f} | {:>4.0f} % | {:>4.0f} % "
      "|\n",
      pass.name, 1e3 * products, 1e3 * exchanges, 1e3 * median(times.in_order),
      1e3 * median(times.one_piece), 1e3 * layer,
      100 * (products + exchanges - layer) / std::min(products, exchanges), 100 * hidden);
}

void agree(Communicator& world, bench::Mlp& mlp, std::vector<Pass>& passes) {
  const std::string difference = mlp.difference(passes);
  int off = difference.empty() ? 0 : 1;
  world.all_reduce(elements(std::span(&off, 1))).wait();
  require(off == 0, "results differ on ", off, " ranks; here ",
          difference.empty() ? "they agree" : difference);
}

void write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  require(bool(file), "cannot write ", path);
}

/// All threads of this process, and those that they will start.
void pin_to_core(int number) {
  cpu_set_t cores, one;
  CPU_ZERO(&one);
  require(sched_getaffinity(0, sizeof cores, &cores) == 0, "cannot ask for the cores of a rank");
  int left = number % CPU_COUNT(&cores);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &cores) && left-- == 0) {
      CPU_SET(core, &one);
    }
  }
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    sched_setaffinity(std::stoi(thread.path().filename()), sizeof one, &one);
  }
}

void measure(const Request& request) {
  Communicator world = Communicator::join();
  pin_to_core(world.rank());
  Communicator by_pieces = world.duplicate("pieces"), in_one = world.duplicate("one piece");
  const bench::WatchedGemm gemm(agree_on_gemm_backend(world));
  const tensor::Parallelism how{.degree = world.size(),
                                .sequence_parallel = !request.every_row,
                                .chunk_bytes = std::size_t(request.chunk_kib) * 1024,
                                .chunk_rows = request.chunk_rows};
  bench::Mlp mlp(by_pieces, in_one, how, request.rows, request.width, gemm);
  std::vector<Pass> passes = mlp.passes();
  agree(world, mlp, passes);
  std::vector<Times> times(passes.size());
  Measurement measurement(world, gemm);
  for (int sample = 0; sample < request.samples; ++sample) {
    for (std::size_t i = 0; i < passes.size(); ++i) {
      measurement.sample(passes[i], times[i]);
    }
  }
  agree(world, mlp, passes);
  if (world.rank() == 0) {
    fmt::print(
        "{} ranks, {} rows of {}, {} inner values a rank; {:.2f} MB leave a rank in an exchange; "
        "products by {}; ms, medians of {}\n\n"
        "| {:<39} | products | exchange | in order | one piece | pieces | hidden | of the trace |\n"
        "|---|---|---|---|---|---|---|---|\n",
        world.size(), request.rows, request.width, 4 * request.width / world.size(),
        mlp.exchanged_bytes() * 1e-6, gemm.name(), request.samples, "pass");
  }
  bench::ChromeTrace trace;
  std::string drawings;
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const auto ranks = bench::all_ranks(world, times[i].spans[middle_of(times[i].layer)]);
    if (world.rank() == 0) {
      print_row(passes[i], times[i], bench::hidden_share(ranks[0]));
      drawings += fmt::format("\n{}\n{}", passes[i].name, bench::drawing(ranks));
      trace.add(passes[i].name, ranks);
    }
  }
  if (world.rank() == 0) {
    fmt::print("{}", drawings);
    if (!request.trace.empty()) {
      write(request.trace, trace.text());
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("How much of what tensor parallel layers exchange hides behind their products.");
  Request request;
  app.add_option("--rows", request.rows, "Of a micro-batch (1024)")->check(CLI::PositiveNumber);
  app.add_option("--width", request.width, "Of a row between layers (1024); four times that inside")
      ->check(CLI::PositiveNumber);
  app.add_option("--chunk-kib", request.chunk_kib, "About so much travels in a piece (512)")
      ->check(CLI::PositiveNumber);
  app.add_option("--chunk-rows", request.chunk_rows, "And no product has fewer rows (256)")
      ->check(CLI::PositiveNumber);
  app.add_option("--samples", request.samples, "Of each way (15)")->check(CLI::PositiveNumber);
  app.add_flag("--every-row", request.every_row,
               "Every rank has every row between layers: all-reduces, no sequence parallelism");
  app.add_option("--trace", request.trace, "Write what chrome://tracing and ui.perfetto.dev open");
  CLI11_PARSE(app, argc, argv);
  try {
    measure(request);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sprat_bench_tensor: %s\n", error.what());
    return 1;
  }
}
