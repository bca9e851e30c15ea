// How long an operation takes on the slowest rank.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "sprat/communicator.hpp"

namespace sprat::cli {

struct Effort {
  std::optional<int> samples;  ///< Otherwise as many as fit the budget, 5 to 100.
  int warmup = 1;              ///< Operations before the first sample.
  std::chrono::duration<double> budget{0.5};
};

/// Of one operation, in microseconds, over samples that are each the slowest rank's.
struct Timing {
  double median_us = 0, p99_us = 0, min_us = 0;
};

/// Collective. A sample is a batch of operations that lasts at least 100 microseconds, after a
/// barrier; what ranks tell each other about time happens outside of it.
Timing measure(Communicator& world, const std::function<void()>& operation, const Effort& effort);

/// The same for several operations, whose samples take turns: by operation, each sample's
/// microseconds. Samples of the same number were taken together.
std::vector<std::vector<double>> measure_in_turns(
    Communicator& world, const std::vector<std::function<void()>>& operations,
    const Effort& effort);

double median(std::vector<double> values);

}  // namespace sprat::cli
