#include "io/report/diagnosis.hpp"

#include <algorithm>
#include <utility>

#include "comm/base/check.hpp"
#include "io/report/core_share.hpp"

namespace sprat::io {
namespace {

/// The causes that one window shows, by the table's rows.
std::vector<std::optional<Cause>> causes_of(const ObservedWindow& window, const Past& past,
                                            const StorageFacts& facts) {
  std::vector<std::optional<Cause>> found;
  bool any = false;
  // While nobody waits, full queues are a sign of health, and nothing is blamed.
  const bool waiting = window.consumer_wait >= little_wait;
  for (const CauseKind* kind : cause_kinds()) {
    const bool looked_for = (waiting || !kind->only_waiting) && !(any && kind->only_alone);
    found.push_back(looked_for ? kind->find(window, past, facts) : std::nullopt);
    any = any || found.back().has_value();
  }
  return found;
}

}  // namespace

std::string Diagnosis::sentence() const {
  // Silence at the start would look like a fault of the report.
  if (causes.empty()) {
    return "watching: a limit is named when it has lasted";
  }
  std::string words;
  constexpr std::size_t most = 2;
  for (std::size_t index = 0; index < std::min(most, causes.size()); ++index) {
    const Cause& cause = causes[index];
    words += text(index > 0 ? "; also " : "", cause.sentence,
                  cause.remedy.empty() ? "" : " -> " + cause.remedy);
  }
  return words;
}

Diagnoser::Diagnoser(StorageFacts facts, const DiagnosisOptions& options)
    : facts_(std::move(facts)), options_(options), beliefs_(cause_kinds().size()) {
  require(options.window_seconds > 0 && options.windows > 0, "a diagnosis of ", options.windows,
          " windows of ", options.window_seconds, " seconds; both must be above 0");
  require(facts_.hosts > 0, facts_.hosts, " hosts read; there must be 1 or more");
}

void Diagnoser::add(const Interval& interval) {
  open_.push_back(interval);
  open_seconds_ += interval.seconds;
  constexpr double rounding = 1e-6;
  if (open_seconds_ + rounding < options_.window_seconds) {
    return;
  }
  // Windows follow each other and do not overlap, so three of them are thirty seconds of evidence.
  const ObservedWindow window = observe(open_);
  open_.clear();
  open_seconds_ = 0;
  judge(window);
  remember(window);
}

void Diagnoser::judge(const ObservedWindow& window) {
  auto found = causes_of(window, past_, facts_);
  diagnosis_.causes.clear();
  for (std::size_t row = 0; row < found.size(); ++row) {
    Belief& belief = beliefs_[row];
    if (found[row]) {
      belief.cause = std::move(*found[row]);
      ++belief.seen;
      belief.missed = 0;
    } else {
      ++belief.missed;
      belief.seen = 0;
    }
    const int enough = std::min(cause_kinds()[row]->windows_to_begin, options_.windows);
    belief.held = belief.held ? belief.missed < options_.windows : belief.seen >= enough;
    if (belief.held) {
      diagnosis_.causes.push_back(belief.cause);
    }
  }
  // Those that only count alone say nothing while a better explanation is believed. The one that
  // the last window still shows is newer than one that is about to be given up.
  std::stable_partition(diagnosis_.causes.begin(), diagnosis_.causes.end(), [&](const Cause& one) {
    for (std::size_t row = 0; row < beliefs_.size(); ++row) {
      if (cause_kinds()[row]->limit == one.limit) {
        return beliefs_[row].missed == 0;
      }
    }
    return false;
  });
}

void Diagnoser::remember(const ObservedWindow& window) {
  // A peak that lasted for two windows is no accident.
  const double lasting = std::min(last_mbps_, window.file_system_mbps);
  constexpr double higher = 1.1, nearly = 0.9;
  if (lasting > higher * past_.peak_mbps) {
    past_.peak_seconds = window.seconds;
  }
  past_.peak_mbps = std::max(past_.peak_mbps, lasting);
  past_.peak_seconds += window.file_system_mbps >= nearly * past_.peak_mbps ? window.seconds : 0;
  last_mbps_ = window.file_system_mbps;
  if (const auto seconds = undisturbed_seconds_per_byte(window)) {
    const double before = past_.reduction_seconds_per_byte.value_or(0);
    ++undisturbed_windows_;
    past_.reduction_seconds_per_byte = before + (*seconds - before) / undisturbed_windows_;
  }
}

Diagnosis diagnose(std::span<const Interval> history, const StorageFacts& facts,
                   const DiagnosisOptions& options) {
  Diagnoser diagnoser(facts, options);
  for (const Interval& interval : history) {
    diagnoser.add(interval);
  }
  return diagnoser.diagnosis();
}

}  // namespace sprat::io
