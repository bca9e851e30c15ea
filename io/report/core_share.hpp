// One budget of cores for decoding, reading and reductions, and what going over it costs.
#pragma once

#include <optional>
#include <string>

#include "io/report/cause.hpp"

namespace sprat::io {

struct CoreShare {
  double budget = 0;                        ///< Cores.
  double decode = 0, read = 0, reduce = 0;  ///< Cores that each took.
  double wanted = 0;       ///< What reductions would take undisturbed, and the rest.
  bool over = false;       ///< All cores are taken, or reductions were seen to suffer.
  double slowdown = 0;     ///< Of reductions: 0.3 if they take 1.3 times as long.
  bool estimated = false;  ///< They were never seen undisturbed: from their own CPU time.
};
/// Empty where cores were not measured, nothing was reduced, or there is nothing to compare with.
std::optional<CoreShare> core_share(const ObservedWindow& window, const Past& past);

/// "preprocessing slows all_reduce by 31 %: ...".
std::string core_share_sentence(const CoreShare& share);

/// Seconds for a byte of reductions in this window, if it had cores to spare.
std::optional<double> undisturbed_seconds_per_byte(const ObservedWindow& window);

}  // namespace sprat::io
