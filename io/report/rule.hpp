// Rules over a whole run, by the names that SageMaker Debugger gives them: a table, one file each
// in rules/.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/report/interval.hpp"

namespace sprat::io {

/// What one rank reported.
struct RankReport {
  int rank = 0;
  std::vector<Interval> intervals;
};

struct RuleResult {
  enum class Verdict : std::uint8_t { fine, found, not_measured };
  Verdict verdict = Verdict::not_measured;
  std::string sentence;  ///< With its figures.
};
std::string_view name(RuleResult::Verdict verdict) noexcept;

struct RuleKind {
  std::string_view name;   ///< Debugger's: "CPUBottleneck".
  std::string_view about;  ///< One sentence.
  RuleResult (*judge)(std::span<const RankReport> run);
};
/// In the order of their names.
std::span<const RuleKind* const> rule_kinds();

/// Seconds at the beginning of a run of which no rule speaks: processes start, caches are empty.
inline constexpr double patience_seconds = 10;
/// Debugger's: a GPU that is busy less is idle, a CPU that is busier is full, a share of the time
/// that is more counts.
inline constexpr double idle_gpu = 0.10, full_cpu = 0.90, long_wait = 0.50, most_of_run = 0.50;

/// The intervals that rules speak of.
std::span<const Interval> judged(const RankReport& report);
/// Whether whoever computes is idle: by the GPU, or, where that is not measured, by long waits for
/// samples.
bool computing_is_idle(const Interval& interval);
/// How full the cores are: of the budget, or else of the busiest stage's threads.
double cpu_share(const Interval& interval);
/// Whether any interval says how busy a GPU is.
bool measures_gpu(std::span<const RankReport> run);
/// A value that a share of `values` does not exceed; `values` has some.
double quantile(std::vector<double> values, double share);

}  // namespace sprat::io
