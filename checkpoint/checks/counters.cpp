// Hashes of counters, compared; the counters themselves travel only if these differ.
#include "checkpoint/checks/counters.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "checkpoint/agreement.hpp"
#include "comm/base/check.hpp"

namespace sprat::fsdp {
namespace {

/// A line for each; different values have different lines.
std::string listed_counters(const Manifest& about) {
  std::string lines = fmt::format("step {}\n", about.step);
  for (const auto& [name, value] : about.counters) {
    lines += fmt::format("{} {}\n", name, value);
  }
  return lines;
}

/// The line at which two texts part, as each has it.
struct DifferingLines {
  std::string first, other;
};

DifferingLines differing_lines(const std::string& first, const std::string& other) {
  std::istringstream of_first(first), of_other(other);
  DifferingLines lines;
  while (lines.first == lines.other && (of_first || of_other)) {
    std::getline(of_first, lines.first);
    std::getline(of_other, lines.other);
  }
  return lines;
}

}  // namespace

void check_counters(Communicator& world, const Manifest& about) {
  const std::string mine = listed_counters(about);
  const std::uint64_t hash = XXH3_64bits(mine.data(), mine.size());
  std::vector<std::uint64_t> all(static_cast<std::size_t>(world.size()));
  world.all_gather(elements(std::span(&hash, 1)), elements(all), {.timeout = {}, .blocking = true})
      .wait();
  const auto other = std::ranges::find_if(all, [&](std::uint64_t one) { return one != all[0]; });
  if (other == all.end()) {
    return;
  }
  const int rank = static_cast<int>(other - all.begin());
  const std::string of_first = text_of(world, mine, 0), of_other = text_of(world, mine, rank);
  const DifferingLines lines = differing_lines(of_first, of_other);
  throw Error(ErrorCode::mismatch,
              text("rank ", rank_in_job(world, 0), " has \"", lines.first, "\" and rank ",
                   rank_in_job(world, rank), " \"", lines.other,
                   "\", and nothing was saved: all ranks of a model take the same steps, skip the "
                   "same and scale the loss alike. Go on from the last checkpoint"));
}

}  // namespace sprat::fsdp
