// One rank's part of a training run: batches through the model, gradients through the sharded step,
// and what to tell.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sprat/fsdp.hpp"
#include "sprat/mp.hpp"
#include "train/checkpoints.hpp"
#include "train/config/config.hpp"
#include "train/data/training_data.hpp"
#include "train/model_part.hpp"
#include "train/model_passes.hpp"
#include "train/report.hpp"
#include "train/stop.hpp"
#include "train/train.hpp"

namespace sprat::train {

/// Every call is collective.
class Trainer {
 public:
  /// `world`: ranks of a host next to each other; it and the rest outlive this.
  Trainer(Communicator& world, const TrainConfig& config, const TrainRequest& request,
          TrainingData& data);
  /// Trains from where the request begins to its last step. Returns the program's exit code.
  int run();

 private:
  /// Sums over ranks of what a step's batch came to.
  struct Totals {
    double loss = 0, tokens = 0;
    bool stop = false;         ///< Some rank was asked to.
    double learning_rate = 0;  ///< As rank 0 computes it.
    PassTimes times;           ///< Means over ranks.
    double data_wait_s = 0;    ///< Likewise.
  };

  bool leads() const { return world_.rank() == 0; }
  template <class... Args>
  void say(fmt::format_string<Args...> message, Args&&... args) const {
    if (leads()) {
      const std::string text = fmt::format(message, std::forward<Args>(args)...);
      if (request_.view != nullptr) {
        request_.view->clear();
      }
      // Whoever reads it may be gone, which must not keep the run from saving itself.
      static_cast<void>(std::fwrite(text.data(), 1, text.size(), stdout));
      std::fflush(stdout);
    }
  }
  /// Of a text that the rank has.
  double held_out_bytes_per_token(const TokenizedText& text) const;
  void introduce() const;
  /// What the rank holds that holds most.
  void tell_memory();
  /// Loads what the request says to go on from, or else to start with; a state of no steps if that
  /// is not a run to go on with.
  TrainingState resume();
  TrainingState state() const;
  void train(std::vector<StepRecord>& records);
  void add_to_report(const StepRecord& record);
  void save_last();
  int end_stopped();
  int end_diverged();
  /// So many steps in a row were skipped that nothing is to be hoped for.
  bool diverged() const {
    return config_.train.max_skipped_steps > 0 && skipped_ >= config_.train.max_skipped_steps;
  }
  /// What the loss is divided by beforehand: the largest power of two of at most a step's tokens.
  double loss_divisor() const;
  std::vector<Batch> next_batches();
  /// All micro-steps, forward and backward.
  Totals pass();
  StepRecord train_step();
  /// To who watches, if anybody does.
  void show(const Progress& progress, const char* doing) const {
    if (request_.view != nullptr && leads()) {
      request_.view->show(progress.status(doing));
    }
  }
  /// A line for people, if there is something to say, and for the record why data was waited for.
  void tell_progress(Progress& progress, StepRecord& record);
  /// Where the configuration gives none: of the steps that follow, from the times of the last one.
  void choose_horizon();
  double validate(int samples);
  void count_skipped(const StepResult& result);
  void tell(const StepResult& result);
  void finish(const std::vector<StepRecord>& records);
  /// Where somebody says what tokens mean.
  bool writes_text() const { return config_.train.sample_bytes > 0 && data_.codec() != nullptr; }
  void write_text();
  void advise() const;

  Communicator& world_;
  const TrainConfig& config_;
  const TrainRequest& request_;
  int last_step_;
  const BatchCut cut_;
  TrainingData& data_;
  ModelPart part_;
  Checkpoints checkpoints_;  // refuses a folder before much is read
  TrainingState resumed_;
  std::shared_ptr<const GemmBackend> gemm_;  // that of the run so far, if it is to be had
  ModelPasses passes_;
  std::optional<ReportFile> report_;
  int step_ = 0;              // steps done
  std::int64_t samples_ = 0;  // and samples that they took
  int skipped_ = 0;           // in a row, at the least loss scale
  bool stopping_ = false;     // all ranks know
};

}  // namespace sprat::train
