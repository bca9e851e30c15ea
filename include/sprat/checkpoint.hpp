// Checkpoints of sharded models: saved while training goes on, whole or not there, loadable by any
// number of ranks under any strategy.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sprat/export.hpp"
#include "sprat/fsdp.hpp"

namespace sprat {

/// Where a run is, beside what the model knows itself.
struct TrainingState {
  std::int64_t step = 0;                     ///< Steps done; the checkpoint is named for it.
  std::int64_t samples = 0;                  ///< Samples used; the data goes on from here.
  std::map<std::string, std::string> notes;  ///< Of the training program.
};

struct CheckpointOptions {
  /// On a file system that all ranks share. One job at a time may save into it.
  std::string folder;
  int keep_last = 2;         ///< Older ones are removed once a new one is complete.
  bool asynchronous = true;  ///< Write a copy of the values while training goes on; else at once.
};

/// Saves a model. Its calls are collective, of one thread, between steps. An Error is the same on
/// every rank; the last checkpoint then stays as it is, and the next save() may succeed.
class SPRAT_API CheckpointWriter {
 public:
  /// `model` outlives it. Throws Error{invalid_argument} if two parameters have one name.
  CheckpointWriter(ShardedModel& model, CheckpointOptions options);
  /// Drops a save that is under way: wait() first.
  ~CheckpointWriter();

  /// Starts a checkpoint of the model as it is now, in folder/step-N. Waits for the one before it.
  void save(const TrainingState& state);
  /// Completes the checkpoint under way if every rank has written its files. Call it at each step.
  void poll();
  /// Returns once no save is under way.
  void wait();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The latest complete checkpoint in `folder`.
SPRAT_API std::optional<std::string> latest_checkpoint(const std::string& folder);

/// Collective, between steps. The model, its optimizer and its loss scale become those of the
/// checkpoint at `path` (or the latest one in that folder), bit by bit, whatever ranks and strategy
/// saved it. Throws the same Error on every rank, naming the file or tensor: {invalid_argument} if
/// it is of another model, {unavailable} if it is damaged; then the model is not to be used.
SPRAT_API TrainingState load_checkpoint(ShardedModel& model, const std::string& path);
/// The same of the parameters alone; the optimizer stays as it is.
SPRAT_API TrainingState load_parameters(ShardedModel& model, const std::string& path);

}  // namespace sprat
