// Learning rates by step, and what is odd about a batch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/config/config.hpp"

namespace sprat::train {

/// How the rate falls from its peak to the final one; a row of the table, one file of schedules/
/// each.
struct ScheduleKind {
  const char* name;
  /// Of the way from the final rate to the peak, what is left after the share `done` of the steps
  /// behind the warm-up: 1 at 0, 0 at 1.
  double (*share)(double done);
};
std::span<const ScheduleKind* const> all_schedules() noexcept;
/// Throws Error{invalid_argument} that lists what there is.
const ScheduleKind& schedule_named(std::string_view name);

/// The highest rate of the run: learning_rate times batch / base_batch, the linear scaling rule
/// (Goyal et al., arXiv:1706.02677, section 2.1).
double peak_learning_rate(const OptimizationConfig& config);

/// Linear warm-up, then by config.schedule from the peak to the final rate; `step` from 0, of those
/// that update. The warm-up begins at 0 or, where the rule raises the rate, at learning_rate itself
/// (section 2.2 there).
double learning_rate(const OptimizationConfig& config, int step);

/// What a run is made of, as far as its batch is concerned.
struct BatchFacts {
  int ranks = 1;
  std::uint64_t samples_per_epoch = 1;
  std::int64_t parameters = 0;
};
/// Sentences, each with its numbers and a remedy; empty if the batch makes sense.
std::vector<std::string> batch_warnings(const TrainConfig& config, const BatchFacts& facts);

}  // namespace sprat::train
