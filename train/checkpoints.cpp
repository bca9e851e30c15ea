// Saving on schedule and at the end; resuming.
#include "train/checkpoints.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "sprat/error.hpp"
#include "train/data/training_data.hpp"

namespace sprat::train {
namespace {

/// While it lives, a stop's grace does not run out.
class WaitForDisk {
 public:
  explicit WaitForDisk(StopRequest* stop) : stop_(stop) {
    if (stop_ != nullptr) {
      stop_->begin_save();
    }
  }
  ~WaitForDisk() {
    if (stop_ != nullptr) {
      stop_->end_save();
    }
  }
  WaitForDisk(const WaitForDisk&) = delete;
  WaitForDisk& operator=(const WaitForDisk&) = delete;

 private:
  StopRequest* stop_;
};

/// Where it is noted, ranks and micro-steps matter by their product alone.
constexpr const char* microbatches_note = "micro-steps of all ranks";
constexpr const char* ranks_note = "data ranks";
constexpr const char* micro_steps_note = "train.micro_steps";

constexpr const char* text_note = "checksum of the text";
constexpr const char* context_note = "parallel.context_parallel_degree";
constexpr const char* feedback_note = "train.precision.error_feedback";

/// What the tokens of a checkpoint are; empty if it does not say, or if it cannot be read, which
/// loading tells better.
std::string tokens_of(const std::string& path) {
  try {
    const std::map<std::string, std::string> notes = describe_checkpoint(path).state.notes;
    if (const auto found = notes.find(tokenizer_note); found != notes.end()) {
      return found->second;
    }
    return notes.contains(text_note) ? "bytes" : "";  // of a version that knew no tokenizers
  } catch (const Error&) {
    return "";
  }
}

const char* yes_or_no(bool value) { return value ? "true" : "false"; }

}  // namespace

std::map<std::string, std::string> run_notes(const TrainConfig& config, const RunFacts& facts) {
  const FsdpOptions& sharding = config.sharding;
  std::map<std::string, std::string> notes = {
      {ranks_note, std::to_string(facts.data_ranks)},
      {kernel_note, facts.gemm},
      {"model.context", std::to_string(config.model.context)},
      {"model.heads", std::to_string(config.model.heads)},
      {"train.seed", std::to_string(sharding.seed)},
      {"train.batch", std::to_string(config.train.batch)},
      {micro_steps_note, std::to_string(sharding.micro_steps)},
      {"train.precision.parameters", name(sharding.parameter_dtype)},
      {"train.precision.parameter_wire",
       name(sharding.parameter_wire.value_or(sharding.parameter_dtype))},
      {"train.precision.gradient_wire", name(sharding.gradient_wire)},
      {feedback_note, yes_or_no(sharding.error_feedback)},
      {"train.precision.stochastic_rounding", yes_or_no(sharding.stochastic_rounding)},
      {context_note, std::to_string(config.pipeline.context_degree)},
      {"parallel.persistence_threshold", std::to_string(sharding.persistence_threshold)}};
  notes.insert(facts.data.begin(), facts.data.end());
  if (config.pipeline.context_degree > 1) {
    notes["parallel.cp_comm_type"] = config.pipeline.cp_comm_type;
  }
  if (sharding.micro_steps > 1) {
    notes["train.accumulate"] = sharding.accumulate == Accumulate::two_hop ? "two_hop" : "local";
    notes["parallel.gradient_order"] = name(sharding.gradient_order);
  }
  if (same_bits_however_shared(config, facts.data_ranks)) {
    notes[microbatches_note] = std::to_string(facts.data_ranks * sharding.micro_steps);
  }
  // Where all rows give the same bits, a run may go on with another row and needs no warning.
  if (!same_bits_on_any_row(config, facts.data_ranks)) {
    notes["strategy"] = facts.row;
  }
  return notes;
}

std::vector<std::string> resume_warnings(const std::map<std::string, std::string>& saved,
                                         const std::map<std::string, std::string>& mine) {
  std::vector<std::string> warnings;
  const bool product = saved.contains(microbatches_note) && mine.contains(microbatches_note);
  for (const auto& [name, value] : mine) {
    const auto found = saved.find(name);
    if (name == place_note) {
      continue;  // it is to be another one
    }
    const bool factor = name == ranks_note || name == micro_steps_note;
    // What an older version did not note is not compared, but that it cut no sequences.
    const bool whole = found == saved.end() && !saved.empty() && name == context_note;
    const std::string before = found != saved.end() ? found->second : whole ? "1" : value;
    if (before != value && !(product && factor)) {
      warnings.push_back(
          fmt::format("{} is {}, in the checkpoint {}: the run goes on, but not with the bits it "
                      "would have had",
                      name, value, before));
    }
  }
  const auto fed_back = [](const std::map<std::string, std::string>& notes) {
    const auto found = notes.find(feedback_note);
    return found != notes.end() && found->second == yes_or_no(true);
  };
  // Each rank's is of its own cut, and lies in no file.
  if (fed_back(saved) && fed_back(mine)) {
    warnings.push_back(
        fmt::format("{} is true, and what it kept is in no checkpoint: it begins anew, so the run "
                    "goes on, but not with the bits it would have had",
                    feedback_note));
  }
  return warnings;
}

void require_same_tokens(Communicator& world, const std::string& path,
                         const std::string& tokenizer) {
  // As rank 0 reads it: where hosts see different files, loading says so.
  constexpr std::size_t most_characters = 64;
  std::vector<std::uint8_t> told(most_characters);
  if (world.rank() == 0) {
    const std::string saved = tokens_of(path);
    std::copy_n(saved.begin(), std::min(saved.size(), most_characters), told.begin());
  }
  world.broadcast(elements(told), 0).wait();
  const std::string saved(told.begin(), std::find(told.begin(), told.end(), 0));
  if (!saved.empty() && !tokenizer.empty() && saved != tokenizer) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the model in {} was trained with data.tokenizer {}, and this run's is "
                            "{}; give data.tokenizer the file that it was trained with, or begin a "
                            "model of this run's own",
                            path, saved, tokenizer));
  }
}

std::optional<std::string> resume_path(Communicator& world, const TrainConfig& config,
                                       const std::string& path) {
  if (!path.empty()) {
    return path;
  }
  if (config.checkpoint.folder.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "--resume without a path looks in checkpoint.folder, which the configuration does "
                "not give");
  }
  return latest_checkpoint(world, config.checkpoint.folder);
}

Checkpoints::Checkpoints(Communicator& world, ShardedModel& part, const CheckpointConfig& config,
                         Say say)
    : config_(config), say_(std::move(say)), tracer_(world.tracer()) {
  if (!config_.folder.empty()) {
    writer_.emplace(world, part,
                    CheckpointOptions{.folder = config_.folder,
                                      .keep_last = config_.keep,
                                      .asynchronous = config_.asynchronous});
    writer_->prepare();
  }
}

void Checkpoints::step(const TrainingState& state, StopRequest* stop) {
  if (!writer_) {
    return;
  }
  const WaitForDisk waits(stop);
  tell_failure([&] { writer_->poll(); });
  // A save that fell due at a skipped step is made now, at the first step that has changed
  // something.
  skipping_ = false;
  if ((is_due(state.step) || std::exchange(due_, false)) && saved_step_ != state.step) {
    const TraceSpan span(tracer_, TraceRow::checkpoint, "save");
    tell_failure([&] { writer_->wait(); });  // for the save before, whose failure is not this one's
    tell_failure([&] { save(state); });
  }
}

void Checkpoints::skipped_step(std::int64_t step, StopRequest* stop) {
  if (!writer_) {
    return;
  }
  const WaitForDisk waits(stop);
  tell_failure([&] { writer_->poll(); });
  skipping_ = true;
  due_ = due_ || is_due(step);
}

void Checkpoints::finish(const TrainingState& state) {
  if (!writer_) {
    return;
  }
  const TraceSpan span(tracer_, TraceRow::checkpoint, "save");
  // The failure of an earlier save is only told, for this one makes up for it. Its own ends the run
  // with an error: nothing comes later that could try again.
  tell_failure([&] { writer_->wait(); });
  if (saved_step_ != state.step) {
    save(state);
  }
  writer_->wait();
}

void Checkpoints::complete() {
  if (writer_) {
    tell_failure([&] { writer_->wait(); });
  }
}

void Checkpoints::save(const TrainingState& state) {
  saved_step_ = state.step;
  // A run that only skips may have diverged: its save prunes none from before the skipping.
  if (skipping_) {
    writer_->save_beside(state);
  } else {
    writer_->save(state);
  }
}

/// What the disk refuses is told, and tried again when the next save is due.
void Checkpoints::tell_failure(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unavailable) {
      throw;
    }
    say_(fmt::format("checkpoint at step {} failed, training goes on: {}", saved_step_,
                     error.what()));
    saved_step_ = -1;
  }
}

}  // namespace sprat::train
