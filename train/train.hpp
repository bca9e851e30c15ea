// The trainer behind `sprat train`.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "sprat/communicator.hpp"
#include "train/report.hpp"
#include "train/stop.hpp"

namespace sprat::train {

/// Who shows on rank 0 how far a run is while it goes on.
struct RunView {
  std::function<void(const RunStatus&)> show;  ///< Whenever something has changed.
  std::function<void()> clear;                 ///< Before each line on standard output.
  /// Lines that say only how far the run is are left to show().
  bool replaces_lines = false;
};

struct TrainRequest {
  std::string config;                 ///< Path of the JSON file.
  std::optional<int> steps;           ///< Stop after so many; the schedule stays the file's.
  std::optional<std::string> report;  ///< Rank 0 writes a line of JSON for each step there.
  /// Go on from this checkpoint; empty: from the latest in the configuration's folder, if any.
  std::optional<std::string> resume;
  /// Begin, where nothing is resumed, with the parameters of this checkpoint.
  std::optional<std::string> start;
  bool quiet = false;           ///< No lines of how far the run is.
  RunView* view = nullptr;      ///< Null: lines alone tell. Borrowed.
  StopRequest* stop = nullptr;  ///< Looked at after each step. Borrowed.
};

/// Trains on all ranks of `world`; rank 0 tells of it on standard output. Collective: every rank
/// makes the same request; a difference is the first thing that is noticed, and refused on all.
/// Returns the program's exit code. Throws Error.
int run(Communicator& world, const TrainRequest& request);

}  // namespace sprat::train
