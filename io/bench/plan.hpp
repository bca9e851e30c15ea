// Which ways of reading a dataset are measured beside the loader, and in which turns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/readers/reader.hpp"

namespace sprat::io {

/// What is read: the files from their beginnings on, samples anywhere in them, or samples that the
/// page cache has.
enum class BenchAccess : std::uint8_t { in_order, scattered, cached };

struct BenchWay {
  BenchAccess access = BenchAccess::in_order;
  const ReaderKind* kind = nullptr;  ///< Null: preads by the thread that measures, as for cached.
  bool direct = false;               ///< Past the page cache.
  int depth = 1;                     ///< Reads under way.
};
/// "files in order, 4 MiB, by uring, directly"; "cached" are reads through the page cache.
std::string bench_way_text(const BenchWay& way, std::uint64_t sample_bytes);

/// What is known before anything is measured.
struct BenchFacts {
  FileSystem where;
  bool cold = false;  ///< The files' pages are let go of before each turn.
  double seconds = 20;
};

struct BenchPlan {
  std::vector<BenchWay> ways;
  int rounds = 1;           ///< In each of them every way has a turn, and then the loader.
  double turn_seconds = 0;  ///< Of each way, and of the loader.
  std::string about;        ///< How storage is told from the page cache: a sentence.
};

/// Of one read that goes through files in order.
inline constexpr std::uint64_t bench_block_bytes = std::uint64_t{4} << 20;

/// Pure. Throws Error{invalid_argument} if there are too few seconds, or more than a day.
BenchPlan plan_bench(const BenchFacts& facts);

}  // namespace sprat::io
