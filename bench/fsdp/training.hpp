// One way of training the GPT, with a model and a place in the text of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "checkpoint/saver.hpp"
#include "fsdp/engine.hpp"
#include "sprat/communicator.hpp"
#include "sprat/mp.hpp"
#include "train/config/config.hpp"
#include "train/data/batches.hpp"
#include "train/model/gpt_stages.hpp"

namespace sprat::bench {

/// What a way is, beside the configuration.
struct Way {
  std::string name;
  std::string strategy;         ///< A row of the table; empty: by degree.
  int hybrid_shard_degree = 0;  ///< As FsdpOptions has it.
  int prefetch_units = 1;
  int reductions_in_flight = 1;
  int micro_steps = 1;
  bool local = false;  ///< Accumulates locally, not in two hops.
  bool tree = false;   ///< GradientOrder::tree.
  std::string gradient_wire = "f32", parameter_wire = "f32";  ///< Dtypes by name; f32: plain.
  bool error_feedback = false;
  /// Once the first step has filled the buffers, collectives return at once.
  bool nothing = false;
  std::string state_tier = "memory", shard_tier = "memory";  ///< As FsdpOptions has them.
  std::string save;          ///< A folder that begin_save() saves into; empty: it does nothing.
  bool asynchronous = true;  ///< Saves, while training goes on.
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Way, name, strategy, hybrid_shard_degree,
                                                prefetch_units, reductions_in_flight, micro_steps,
                                                local, tree, gradient_wire, parameter_wire,
                                                error_feedback, nothing, state_tier, shard_tier,
                                                save, asynchronous)

/// Parameters of an engine, which must outlive this. The GPT has each micro-batch alone, as number
/// 0 of a step, so the engine's visits say which one it is; there are no evaluations.
class EngineParameters final : public train::Parameters {
 public:
  explicit EngineParameters(fsdp::Engine& engine) : engine_(engine) {}
  void acquire(int unit) override { engine_.acquire(unit); }
  void release(int unit) override { engine_.release(unit); }
  std::span<const float> values(int unit, int index) const override;
  std::span<float> gradients(int unit, int index, int) override;
  void reduce(int unit, int) override { engine_.reduce(unit); }

 private:
  fsdp::Engine& engine_;
};

class Training {
 public:
  /// Collective. A batch of the configuration is that of one micro-step.
  Training(Communicator& world, const train::TrainConfig& config, const Way& way,
           const std::shared_ptr<const GemmBackend>& gemm);

  /// As the trainer's: the mean loss of all ranks' samples.
  double step();
  /// Starts a checkpoint of the model as it is; steps go on with it.
  void begin_save();
  /// Returns once it is on the disk.
  void end_save();
  /// Of parameters and gradients so far, by the collectives' definitions.
  std::uint64_t bytes_sent() const;

 private:
  Communicator& world_;
  const train::TrainConfig& config_;
  Way way_;
  bool silent_ = false;  // collectives return at once
  train::Batches batches_;
  fsdp::Engine engine_;
  EngineParameters parameters_;
  train::GptStages gpt_;
  fsdp::ModelState held_;
  std::optional<fsdp::Saver> saver_;
  int step_ = 0;
};

}  // namespace sprat::bench
