// Ranks of a pipeline that are played one after another in one thread, with parameters that write
// down how they are used.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "train/model/gpt_stages.hpp"

namespace sprat::train {

inline constexpr GptShape small_gpt{
    .layers = 4, .width = 16, .heads = 2, .context = 8, .vocabulary = 37};

std::shared_ptr<const GemmBackend> stages_gemm();
/// Initial values of GPT-2 leave gradients small and biases at 0; a check wants neither.
void enlarge(WholeParameters& parameters, const std::vector<UnitSpec>& units);
std::vector<std::int32_t> some_tokens(std::size_t count, int vocabulary, const char* purpose);

/// Sequences of a micro-batch.
struct PlayedBatch {
  int length = 0, sequences = 0;
  std::vector<std::int32_t> tokens = {}, targets = {};
};
std::vector<PlayedBatch> played_batches(const GptShape& shape,
                                        const std::vector<std::pair<int, int>>& lengths);

/// Gradients by the unit's place in the whole model, parameter and micro-batch.
using PlayedGradients = std::map<std::tuple<std::string, int, int>, std::vector<float>>;

/// Whole parameters that hold each call against what it may do, and keep the gradients of each
/// micro-batch apart.
class WatchedParameters final : public Parameters {
 public:
  explicit WatchedParameters(const std::vector<UnitSpec>& units);
  void acquire(int unit) override;
  void release(int unit) override;
  std::span<const float> values(int unit, int index) const override;
  std::span<float> gradients(int unit, int index, int microbatch) override;
  void reduce(int unit, int microbatch) override;

  /// The micro-batch of the action that is played.
  void play(int microbatch) { microbatch_ = microbatch; }
  /// Uses so far, each of the pass that says what was asked for.
  const std::vector<Visit>& visits() const { return visits_; }
  const PlayedGradients& taken() const { return taken_; }

 private:
  const std::vector<UnitSpec> units_;
  WholeParameters whole_;
  int acquired_ = -1;
  int microbatch_ = 0;
  mutable bool read_ = false;  // values, in the visit under way
  std::vector<Visit> visits_;
  PlayedGradients taken_;
};

struct PlayedPlan {
  std::string schedule = "1f1b";  ///< One of mp::schedule_kinds().
  int stages_per_rank = 1;
  std::vector<int> first_layer = {0};
  bool recomputed = false;  ///< By actions of their own.
  int checkpoint_blocks = 0;
  ActivationOptions activations = {.poison = true};
  std::shared_ptr<const GemmBackend> gemm = {};  ///< None: stages_gemm().
  /// Who has the other positions of sequences, of which the batches then hold this rank's alone.
  Communicator* context_ranks = nullptr;
  ContextOptions context = {};
};
struct PlayedResult {
  std::vector<double> losses;
  PlayedGradients gradients;
};

/// A rank, its stages and what they use.
struct PlayedRank {
  GptStagesOptions options;
  std::vector<UnitSpec> units;
  std::unique_ptr<WatchedParameters> parameters;
  std::unique_ptr<GptStages> stages;
};
/// With a tensor group they are those of one tensor rank, which plays its pipeline alone.
std::vector<PlayedRank> played_ranks(const GptShape& shape, const PlayedPlan& plan,
                                     const std::vector<PlayedBatch>& batches,
                                     tensor::Group* group = nullptr);
/// One step.
PlayedResult play(const GptShape& shape, std::vector<PlayedRank>& ranks,
                  const std::vector<PlayedBatch>& batches, float loss_scale = 1);
PlayedResult play(const GptShape& shape, const PlayedPlan& plan,
                  const std::vector<PlayedBatch>& batches);

}  // namespace sprat::train
