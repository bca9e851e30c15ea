// When a run saves itself, and how it goes on from what it saved.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sprat/checkpoint.hpp"
#include "sprat/communicator.hpp"
#include "train/config.hpp"
#include "train/stop.hpp"

namespace sprat::train {

/// What a run's samples and bits depend on beside the model, by the configuration's names.
std::map<std::string, std::string> run_notes(const TrainConfig& config, std::size_t text_bytes);

/// Sentences on how `saved` differs from `mine`; empty if a run that resumes has the bits of one
/// that went on.
std::vector<std::string> resume_warnings(const std::map<std::string, std::string>& saved,
                                         const std::map<std::string, std::string>& mine);

/// Where --resume goes on: at `path` or, if that is empty, at the latest checkpoint of the
/// configuration's folder. nullopt if there is none yet. Throws Error{invalid_argument} if there is
/// no folder to look in. Collective.
std::optional<std::string> resume_path(Communicator& world, const TrainConfig& config,
                                       const std::string& path);

/// The checkpoints of one run. Calls are collective.
class Checkpoints {
 public:
  /// Tells of a save that failed while the run goes on.
  using Say = std::function<void(const std::string&)>;
  /// Without a folder in the configuration nothing is saved. The model outlives this.
  Checkpoints(ShardedModel& model, const CheckpointConfig& config, Say say);

  /// After each step: saves if one is due, and completes one that has been written. What fails is
  /// told, and tried again when the next is due. `stop`, if there is one, learns of a save that may
  /// wait for the disk; polling a save waits for ranks alone.
  void step(const TrainingState& state, StopRequest* stop);
  /// Where the run ends: saves unless just done, and waits until all is on disk. Throws Error.
  void finish(const TrainingState& state);
  bool enabled() const { return writer_.has_value(); }

 private:
  void save(const TrainingState& state);
  void tell_failure(const std::function<void()>& body);

  CheckpointConfig config_;
  Say say_;
  std::optional<CheckpointWriter> writer_;
  std::int64_t saved_step_ = -1;  // of the last save that began, unless it is known to have failed
};

}  // namespace sprat::train
