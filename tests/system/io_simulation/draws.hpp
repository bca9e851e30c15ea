// What setups are drawn of: numbers, files, batches.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/system/io_simulation/run.hpp"

namespace sprat::io_simulation {

inline constexpr std::uint64_t kib = 1024, mib = 1024 * kib;

double between(Random& random, double first, double last);
/// Small ones as likely as large ones.
std::uint64_t log_between(Random& random, double first, double last);

/// Files whose stripes begin at random targets.
std::vector<StoredFile> draw_files(Random& random, int targets, std::uint64_t all_bytes);
struct DrawnBytes {
  std::uint64_t record = 0, batch = 0, all = 0;
};
/// All records of all files, each once, shuffled.
std::vector<std::vector<io::Extents>> draw_batches(Random& random,
                                                   const std::vector<StoredFile>& files,
                                                   const DrawnBytes& bytes_of);
/// Bytes a second, of all targets' bases.
double storage_rate(const RunSetup& setup);
/// One that the last batches read from.
Target any_target(const RunSetup& setup, Random& random);

}  // namespace sprat::io_simulation
