// `sprat io bench PATH ...`: how fast this machine reads a dataset, and what the loader makes of
// it.
#pragma once

#include <string>

#include "cli/command.hpp"
#include "io/bench/run.hpp"

namespace sprat::cli {

inline constexpr const char* io_bench_summary =
    "Measure how fast files are read, beside the loader over them";
inline constexpr const char* io_bench_lesson =
    R"(Ways to read these files and the loader take turns for some seconds: files in order, samples anywhere, by each
reader; samples that the page cache has; then batches. The table has medians, and what the loader gives of the best
way to read what it reads. The last line says what limits: storage, the page cache, the reader, decode, or who takes
batches. Nothing computes meanwhile, so a job whose need is below the loader's rate never waits for its data.

Rates are MB/s of 1e6 bytes of what samples are made of. Storage is read past the page cache where the file system
allows it. --cold lets go of these files' pages before each turn, which needs no root and leaves all other files
alone; their next readers pay for it. Storage is then read through the page cache, too ("cached"). Under mpirun each
rank reads its part: the table has sums, and the slowest rank. Decode stages of your own are not run.

Examples:
  sprat io bench 'train/*.tar' --batch 256
  sprat io bench tokens/ --format tokens --token-type u16 --length 4096 --batch 64 --seconds 60
  sprat io bench 'train/*.tar' --batch 256 --shuffle chunks --cold     is reading neighbours together faster?
  mpirun -np 8 sprat io bench '/fsx/train/*.tar' --batch 2048 --json   what do 8 ranks get together?
)";
/// Adds the options to `app`. The Action is called after parsing.
Action prepare_io_bench(CLI::App& app);

/// The table for people, ending in a newline.
std::string io_bench_text(const io::BenchResult& result);
/// One JSON object.
std::string io_bench_json(const io::BenchResult& result);

}  // namespace sprat::cli
