// Checkpoints of sharded models: saved while training goes on, whole or not there, loadable by any
// number of ranks under any strategy.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sprat/communicator.hpp"
#include "sprat/export.hpp"
#include "sprat/fsdp.hpp"

namespace sprat {

/// Where a run is, beside what the model knows itself.
struct TrainingState {
  std::int64_t step = 0;                     ///< Steps done; the checkpoint is named for it.
  std::int64_t samples = 0;                  ///< Samples used; the data goes on from here.
  std::map<std::string, std::string> notes;  ///< Of the training program.
};

/// Where checkpoints are saved, and how many stay.
struct CheckpointOptions {
  /// On a file system that all ranks share. One job at a time may save into it.
  std::string folder;
  int keep_last = 2;         ///< Older ones are removed once a new one is complete.
  bool asynchronous = true;  ///< Write a copy of the values while training goes on; else at once.
};

/// Saves a model. Its calls are collective, of one thread, between steps. An Error is the same on
/// every rank; the last checkpoint then stays as it is, and the next save() may succeed.
///
/// Where ranks have different stages of a model, or parts of its tensors (ParameterSpec::box), each
/// group of ranks that share some keeps these as a ShardedModel on a communicator of its own, and
/// all ranks of `world` save one checkpoint: of the tensors that a job without stages or cuts would
/// save. Calls are then collective over `world`.
class SPRAT_API CheckpointWriter {
 public:
  /// `model` outlives it. Throws Error{invalid_argument} if two parameters have one name, or one
  /// has a name that is not UTF-8, begins with "optimizer." or is "__metadata__".
  CheckpointWriter(ShardedModel& model, CheckpointOptions options);
  /// Collective over `world`, which outlives it as `part` does: this rank's part of the model. Each
  /// rank of `world` is in the communicator of one part, and of no other. Throws as above, of the
  /// whole model, if boxes of one name do not make up a tensor, and if parts have different
  /// optimizers. A parameter that is tied (ParameterSpec::tied) is saved once, by the part where it
  /// is not.
  CheckpointWriter(Communicator& world, ShardedModel& part, CheckpointOptions options);
  /// Drops a save that is under way: wait() first.
  ~CheckpointWriter();

  /// Tries what a save needs, so that a run need not come to its first to learn what is wrong:
  /// makes the folder, keeps other jobs from saving into it from now on, and writes a byte there
  /// from each rank that is to write. Throws as save() does. Without it the first save() does the
  /// same.
  void prepare();
  /// Starts a checkpoint of the model as it is now, in folder/step-N. Waits for the one before it.
  /// Throws Error{mismatch} if ranks that hold the same part hold different values, or if ranks
  /// are at different steps, have done different numbers of updates or scale the loss differently.
  void save(const TrainingState& state);
  /// The same, and removes no other checkpoint: for values that nobody vouches for, such as those
  /// of a run whose gradients are not finite.
  void save_beside(const TrainingState& state);
  /// Completes the checkpoint under way if every rank has written its files. Call it at each step.
  void poll();
  /// Returns once no save is under way, and old checkpoints are removed.
  void wait();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The latest complete checkpoint in `folder`. Throws Error{unavailable} if it is there and cannot
/// be read.
SPRAT_API std::optional<std::string> latest_checkpoint(const std::string& folder);
/// Collective. The same as rank 0 finds it, on all ranks: hosts may see changes of a folder that
/// they share at different times.
SPRAT_API std::optional<std::string> latest_checkpoint(Communicator& world,
                                                       const std::string& folder);

/// Collective, between steps. The model, its optimizer and its loss scale become those of the
/// checkpoint at `path` (or the latest one in that folder, as rank 0 finds it), bit by bit,
/// whatever ranks and strategy saved it. Throws the same Error on every rank, naming the file or
/// tensor: {invalid_argument} if it is of another model, {unavailable} if it is damaged; then the
/// model is not to be used.
SPRAT_API TrainingState load_checkpoint(ShardedModel& model, const std::string& path);
/// The same of the parameters alone; the optimizer stays as it is.
SPRAT_API TrainingState load_parameters(ShardedModel& model, const std::string& path);
/// The same of a job whose ranks have different parts of the model, as CheckpointWriter has them;
/// collective over `world`. Whatever stages and cuts the job that saved had. What is tied becomes a
/// copy of what it is tied to, and so does its optimizer state.
SPRAT_API TrainingState load_checkpoint(Communicator& world, ShardedModel& part,
                                        const std::string& path);
SPRAT_API TrainingState load_parameters(Communicator& world, ShardedModel& part,
                                        const std::string& path);

// Of checkpoints as files, without a job. A path is a checkpoint, a folder of them (its latest is
// meant), a safetensors file, or a folder of such files. These throw Error{unavailable} naming the
// file that is missing or damaged.

/// One tensor of a checkpoint, whole.
struct CheckpointTensor {
  std::string name;
  std::string dtype;  ///< As safetensors names it.
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;
};

/// One file of a checkpoint.
struct CheckpointFile {
  std::string name;
  std::uint64_t bytes = 0;
};

/// What a checkpoint says of itself.
struct CheckpointInfo {
  std::string path;      ///< Of the checkpoint that was meant.
  bool checked = false;  ///< It has a manifest with checksums; else only tensors and files.
  TrainingState state;
  std::map<std::string, double> counters;     ///< Of optimizer and loss scaler.
  std::map<std::string, std::string> config;  ///< What the model ran with.
  std::vector<CheckpointTensor> tensors;
  std::vector<CheckpointFile> files;
};
SPRAT_API CheckpointInfo describe_checkpoint(const std::string& path);

/// Reads every block of every file: a line for each that is missing or damaged, naming it; no line
/// if the checkpoint is whole.
SPRAT_API std::vector<std::string> verify_checkpoint(const std::string& path);

/// How parameters are written; what each form is stands beside its name.
enum class CheckpointForm {
#define SPRAT_CHECKPOINT_FORM(name) name,
#include "sprat/checkpoint_forms.def"
};
/// Writes the parameters at `from` to `to`, in f32. Names and weights of Hugging Face's GPT-2 are
/// known and turned into ours. Memory: one tensor. Throws Error{invalid_argument} naming a tensor
/// that has no place in the form, or a target that is already there or lies in a checkpoint.
SPRAT_API void convert_checkpoint(const std::string& from, const std::string& to,
                                  CheckpointForm form);
/// Collective, between steps. The parameters of a model as one safetensors file at `path`, in the
/// form `single` or `hf_gpt2`. A file that is there is replaced once the new one is whole. Every
/// rank writes its own part: none ever has the whole model.
SPRAT_API void export_parameters(ShardedModel& model, const std::string& path,
                                 CheckpointForm form = CheckpointForm::single);
/// The same of a job whose ranks have different parts of the model; collective over `world`.
SPRAT_API void export_parameters(Communicator& world, ShardedModel& part, const std::string& path,
                                 CheckpointForm form = CheckpointForm::single);

}  // namespace sprat
