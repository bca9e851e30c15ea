// All turns of a bench: ways to read and the loader, on every rank at once.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "io/bench/judgement.hpp"
#include "io/bench/plan.hpp"
#include "io/bench/read_rate.hpp"
#include "sprat/data.hpp"

namespace sprat::io {

struct BenchRequest {
  /// One source. rank and ranks are those of the bench: each rank reads its part.
  LoaderOptions loader;
  double seconds = 20;  ///< About: of all turns together. Opening datasets comes before.
  bool cold = false;    ///< Let go of the files' pages in the page cache before each turn.
  /// Told before each turn what it is of: "the loader", and how many turns are over, of how many.
  std::function<void(const std::string& what, int over, int of)> tell = {};
};

/// All ranks' numbers, in rank order, once each has given its own.
using GatherNumbers = std::function<std::vector<double>(double mine)>;

struct BenchResult {
  std::uint32_t files = 0;
  std::uint64_t bytes = 0, samples = 0, sample_bytes = 0;  ///< The last is a mean.
  int ranks = 1;
  std::string reading;  ///< How the loader reads, and why.
  BenchPlan plan;
  std::optional<ReleasedPages> released = {};  ///< Of a turn, if pages were let go of.
  std::vector<MeasuredWay> ways = {};
  MeasuredLoader loader = {};
  BenchJudgement judgement = {};
};

/// Collective: all ranks get the same rates. Throws Error naming the option or the file, and where
/// ranks would measure different things.
BenchResult run_bench(const BenchRequest& request, const GatherNumbers& gather);

}  // namespace sprat::io
