// When a run saves itself, and how it goes on from what it saved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sprat/checkpoint.hpp"
#include "sprat/communicator.hpp"
#include "train/config/config.hpp"
#include "train/stop.hpp"

namespace sprat::train {

/// Whose products gave a run its bits, among the notes of its checkpoints.
constexpr const char* kernel_note = "matrix products by";
/// What a run's bits depend on and its configuration does not say.
struct RunFacts {
  int data_ranks;                           ///< That read different samples.
  std::string row;                          ///< Of the table of strategies.
  std::map<std::string, std::string> data;  ///< TrainingData::notes().
  std::string gemm;                         ///< The kernel of matrix products.
};

/// What a run's samples and bits depend on beside the model and numbers that are there to be
/// changed, such as rates; by the configuration's names.
std::map<std::string, std::string> run_notes(const TrainConfig& config, const RunFacts& facts);

/// Sentences on how `saved` differs from `mine`, in what both have noted. If there are none, a run
/// that resumes with the same model, steps, rates and optimizer has the bits of one that went on.
std::vector<std::string> resume_warnings(const std::map<std::string, std::string>& saved,
                                         const std::map<std::string, std::string>& mine);

/// Collective. Throws Error{invalid_argument} on every rank if the model at `path` was trained with
/// other tokens than `tokenizer` tells. What was not saved by a training run may know any, and so
/// may a run of tokens that nobody says the meaning of, whose `tokenizer` is empty.
void require_same_tokens(Communicator& world, const std::string& path,
                         const std::string& tokenizer);

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
  /// Without a folder in the configuration nothing is saved. `part`: of the model, this rank's;
  /// both references outlive this. Throws Error if the folder cannot be saved into, or if another
  /// job saves there.
  Checkpoints(Communicator& world, ShardedModel& part, const CheckpointConfig& config, Say say);

  /// After each step: saves if one is due, and completes one that has been written. What fails is
  /// told, and tried again when the next is due. `stop`, if there is one, learns that this may wait
  /// for the disk.
  void step(const TrainingState& state, StopRequest* stop);
  /// The same after a step that was skipped. A save that is due comes after the next step that is
  /// not: the model is as it was, and if it never recovers, what was saved before must not go.
  void skipped_step(std::int64_t step, StopRequest* stop);
  /// Where the run ends: saves unless just done, beside all others if steps are being skipped, and
  /// waits until all is on disk. Throws Error.
  void finish(const TrainingState& state);
  /// Where it ends without a save: waits for the one under way.
  void complete();
  bool enabled() const { return writer_.has_value(); }
  /// Whether step() of this one begins a save, unless it failed or was skipped.
  bool saves_at(std::int64_t step) const { return enabled() && is_due(step); }

 private:
  bool is_due(std::int64_t step) const { return config_.every > 0 && step % config_.every == 0; }
  void save(const TrainingState& state);
  void tell_failure(const std::function<void()>& body);

  CheckpointConfig config_;
  Say say_;
  Tracer* tracer_;
  std::optional<CheckpointWriter> writer_;
  bool due_ = false;              // while steps are skipped
  bool skipping_ = false;         // the last step was skipped
  std::int64_t saved_step_ = -1;  // of the last save that began, unless it is known to have failed
};

}  // namespace sprat::train
