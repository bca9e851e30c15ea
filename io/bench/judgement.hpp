// What a bench's figures mean: what limits the loader over these files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/bench/plan.hpp"
#include "io/report/interval.hpp"

namespace sprat::io {

/// Rates of all ranks together, a value a round.
struct MeasuredWay {
  BenchWay way;
  std::vector<double> mbps;          ///< Of the bytes that samples are made of; 1e6 bytes.
  std::vector<double> slowest_mbps;  ///< The slowest rank's.
};

struct MeasuredLoader {
  std::vector<double> mbps, slowest_mbps, samples_per_second;
  std::string_view reader;               ///< Its reader's name.
  bool direct = false;                   ///< It reads past the page cache.
  bool scattered = false;                ///< Samples that come one after another lie anywhere.
  std::vector<Interval> intervals = {};  ///< One rank's, of its turns.
};

struct BenchJudgement {
  enum class Limit : std::uint8_t { storage, page_cache, decode, reader, consumer, loader };
  Limit limit = Limit::storage;
  double limit_mbps = 0;  ///< What the best way gave of what the loader reads; its median.
  double share = 0;  ///< The loader's median of that. Above 1 where it reads neighbours at once.
  std::string sentence;  ///< What limits, with figures, and what would lift it.
};
std::string_view name(BenchJudgement::Limit limit) noexcept;

/// Of values, 0 if there are none.
double median_of(std::vector<double> values);

/// Pure. `ways` has each access once at least.
BenchJudgement judge_bench(const std::vector<MeasuredWay>& ways, const MeasuredLoader& loader);

}  // namespace sprat::io
