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

std::optional<std::string> resume_path(const TrainConfig& config, const std::string& path) {
  if (!path.empty()) {
    return path;
  }
  if (config.checkpoint.folder.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "--resume without a path looks in checkpoint.folder, which the configuration does "
                "not give");
  }
  return latest_checkpoint(config.checkpoint.folder);
}

Checkpoints::Checkpoints(ShardedModel& model, const CheckpointConfig& config, Say say)
    : config_(config), say_(std::move(say)) {
  if (!config_.folder.empty()) {
    writer_.emplace(model, CheckpointOptions{.folder = config_.folder,
                                             .keep_last = config_.keep,
                                             .asynchronous = config_.asynchronous});
  }
}

void Checkpoints::step(const TrainingState& state) {
  if (!writer_) {
    return;
  }
  try {
    writer_->poll();
    if (config_.every > 0 && state.step % config_.every == 0 && saved_step_ != state.step) {
      writer_->save(state);
      saved_step_ = state.step;
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unavailable) {
      throw;
    }
    saved_step_ = -1;
    say_(fmt::format("checkpoint at step {} failed, training goes on: {}", state.step,
                     error.what()));
  }
}

void Checkpoints::finish(const TrainingState& state) {
  if (!writer_) {
    return;
  }
  if (saved_step_ != state.step) {
    writer_->save(state);
    saved_step_ = state.step;
  }
  writer_->wait();
}

}  // namespace sprat::train
