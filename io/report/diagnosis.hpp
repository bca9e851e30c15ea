// What limits a loader now, in words: windows of ten seconds, causes that last.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "io/report/cause.hpp"

namespace sprat::io {

struct DiagnosisOptions {
  double window_seconds = 10;
  /// Windows in a row until a cause is believed, and until it is believed to be gone. A cause that
  /// passes quickly by nature (failover) is believed at once.
  int windows = 3;
};

struct Diagnosis {
  std::vector<Cause> causes = {};  ///< The most urgent first; empty: not observed for long enough.

  /// Of the first cause; Limit::unknown if there is none.
  Limit limit() const { return causes.empty() ? Limit::unknown : causes.front().limit; }
  /// Of the two first causes, with what would lift them.
  std::string sentence() const;
};

/// Takes intervals as they come. Pure: equal histories give equal words.
class Diagnoser {
 public:
  explicit Diagnoser(StorageFacts facts, const DiagnosisOptions& options = {});

  void add(const Interval& interval);
  const Diagnosis& diagnosis() const noexcept { return diagnosis_; }
  /// Names of files and the like become known while a loader runs.
  void learn(StorageFacts facts) { facts_ = std::move(facts); }

 private:
  struct Belief {
    int seen = 0, missed = 0;  ///< Windows in a row.
    bool held = false;
    Cause cause;  ///< As it was seen last.
  };
  void judge(const ObservedWindow& window);
  void remember(const ObservedWindow& window);

  StorageFacts facts_;
  const DiagnosisOptions options_;
  std::vector<Interval> open_;  // of the window that is not yet full
  double open_seconds_ = 0;
  std::vector<Belief> beliefs_;  // by the table's rows
  Past past_;
  double last_mbps_ = 0;         // of the window before
  int undisturbed_windows_ = 0;  // that past_.reduction_seconds_per_byte is the mean of
  Diagnosis diagnosis_;
};

/// The diagnosis at the end of a history.
Diagnosis diagnose(std::span<const Interval> history, const StorageFacts& facts,
                   const DiagnosisOptions& options = {});

}  // namespace sprat::io
