// Saving on schedule and at the end; resuming.
#include "train/checkpoints.hpp"

#include <fmt/core.h>

#include "sprat/error.hpp"

namespace sprat::train {

std::map<std::string, std::string> run_notes(const TrainConfig& config, std::size_t text_bytes) {
  return {{"train.seed", std::to_string(config.train.seed)},
          {"train.batch", std::to_string(config.train.batch)},
          {"train.micro_steps", std::to_string(config.train.micro_steps)},
          {"model.context", std::to_string(config.model.context)},
          {"bytes of text", std::to_string(text_bytes)}};
}

std::vector<std::string> resume_warnings(const std::map<std::string, std::string>& saved,
                                         const std::map<std::string, std::string>& mine) {
  std::vector<std::string> warnings;
  for (const auto& [name, value] : mine) {
    const auto found = saved.find(name);
    if (found != saved.end() && found->second != value) {
      warnings.push_back(
          fmt::format("{} is {}, in the checkpoint {}: the run goes on, but not with the bits it "
                      "would have had",
                      name, value, found->second));
    }
  }
  return warnings;
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

Checkpoints::Checkpoints(ShardedModel& model, const CheckpointConfig& config, Say say)
    : config_(config), say_(std::move(say)) {
  if (!config_.folder.empty()) {
    writer_.emplace(model, CheckpointOptions{.folder = config_.folder,
                                             .keep_last = config_.keep,
                                             .asynchronous = config_.asynchronous});
  }
}

void Checkpoints::step(const TrainingState& state, StopRequest* stop) {
  if (!writer_) {
    return;
  }
  tell_failure([&] { writer_->poll(); });
  if (config_.every > 0 && state.step % config_.every == 0 && saved_step_ != state.step) {
    if (stop != nullptr) {
      stop->saving(true);
    }
    tell_failure([&] { writer_->wait(); });  // for the save before, whose failure is not this one's
    tell_failure([&] { save(state); });
    if (stop != nullptr) {
      stop->saving(false);
    }
  }
}

void Checkpoints::finish(const TrainingState& state) {
  if (!writer_) {
    return;
  }
  tell_failure([&] { writer_->wait(); });
  if (saved_step_ != state.step) {
    save(state);
  }
  writer_->wait();
}

void Checkpoints::save(const TrainingState& state) {
  saved_step_ = state.step;
  writer_->save(state);
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
