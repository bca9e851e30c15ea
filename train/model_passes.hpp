// Steps and evaluations of one rank's part of the model: micro-batches through its stages, in the
// order of the schedule.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sprat/mp.hpp"
#include "sprat/pipeline.hpp"
#include "train/data/batches.hpp"
#include "train/model/gpt_stages.hpp"
#include "train/model/parameters.hpp"
#include "train/model_part.hpp"
#include "train/rank_memory.hpp"

namespace sprat::train {

/// What one rank did with the time of a step's forwards and backwards.
struct PassTimes {
  double idle = 0;            ///< The part in which it did not compute.
  double message_wait_s = 0;  ///< For those of other stages, which may not have been made yet.
  double load_stall_s = 0;    ///< Waiting for activations to come back,
  double store_wait_s = 0;    ///< and for room to send more of them away.
};

/// Calls are collective over the pipeline.
class ModelPasses {
 public:
  /// For micro-batches of at most so many samples. `part` outlives it. Throws Error{unavailable}
  /// naming the keys that need less memory if there is too little.
  ModelPasses(ModelPart& part, const TrainConfig& config, std::shared_ptr<const GemmBackend> gemm,
              int samples_at_once);

  /// Forward and backward of all micro-batches of a step. Returns by micro-batch the sum over
  /// tokens of their losses; nothing where another rank of this copy of the model tells them.
  std::span<const double> train(std::span<const Batch> microbatches, float loss_scale);
  /// The same by forwards alone, and by sample, of as many micro-batches as a step has; some may be
  /// empty.
  std::vector<double> evaluate(std::span<const Batch> microbatches);

  /// Of the last train().
  PassTimes times() const;
  /// What the times of the last train() say; nothing where no activation has moved yet.
  std::optional<HorizonChoice> choose_horizon() const { return stages_.choose_horizon(); }
  /// Of the steps that follow; the same on every rank of the job.
  void set_horizon(int horizon) { stages_.set_horizon(horizon); }
  /// What this rank holds at most, by plan, with any horizon that may be set.
  RankMemory memory() const;
  ShardedParameters& parameters() { return parameters_; }

 private:
  ModelPart& part_;
  int length_;  // of what this rank has of a sequence
  ShardedParameters parameters_;
  GptStages stages_;
  Pipeline training_, evaluation_;
  ActivationCounters before_, after_;  // the last train()
};

}  // namespace sprat::train
