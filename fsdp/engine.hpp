// The engine of a sharded model: units on a mesh, driven by the orders of gathers and reductions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/axis_communicator.hpp"
#include "fsdp/encoded_sum.hpp"
#include "fsdp/model_state.hpp"
#include "fsdp/optimizer.hpp"
#include "fsdp/plan/layout.hpp"
#include "fsdp/plan/lifetimes.hpp"
#include "fsdp/plan/memory_plan.hpp"
#include "fsdp/plan/placement.hpp"
#include "fsdp/plan/visits.hpp"
#include "fsdp/scaler.hpp"
#include "fsdp/unit.hpp"
#include "io/tier.hpp"
#include "memory/arena.hpp"
#include "sprat/fsdp.hpp"
#include "sprat/mesh.hpp"

namespace sprat::fsdp {

/// How far gradients are within a step.
struct GradientProgress {
  std::vector<int> reduced;  ///< Micro-batches whose reduce() came, by unit.
  std::vector<int> visited;  ///< The micro-batch of the latest visit that adds to it, by unit.
  std::vector<int> awaited;  ///< Units whose reduce() has not come, by micro-batch.
};

/// Which sums are under way, of the first hop and of the second if that is limited.
struct SumsUnderWay {
  ReductionOrder first, second;
};

/// What sums of encoded blocks need, if the wire of gradients is such. Replies have a communicator
/// of their own.
struct EncodedAxis {
  std::optional<Communicator> ranks;
  std::optional<AxisCommunicator> replies;
  std::optional<EncodedSums> sums;
};

/// What ShardedModel does; its calls mean what that one's mean.
class Engine {
 public:
  Engine(Communicator& world, std::vector<UnitSpec> units, FsdpOptions options,
         const QueueKind& queues = inline_queue());

  void acquire(int unit);
  void release(int unit);
  bool has_values(int unit) const;
  ConstElements parameter(int unit, int index) const;
  GradientTarget gradient_target(int unit, int index, std::optional<int> microbatch = {});
  void reduce(int unit, std::optional<int> microbatch = {});
  StepResult step(float learning_rate, double divisor);
  void finish_gradients();
  std::span<float> summed_gradient(int unit);
  std::vector<SquareSum> square_sums();
  StepResult apply(float learning_rate, double grad_norm, double divisor);
  void sum_over_ranks(std::span<double> values);

  Communicator& world() noexcept { return mesh_.world(); }
  const FsdpOptions& options() const noexcept { return options_; }
  const Sharding& sharding() const noexcept { return sharding_; }
  const LossScaler& scaler() const noexcept { return scaler_; }
  const MemoryPlan& memory_plan() const noexcept { return memory_plan_; }
  const Traffic& traffic() const noexcept { return traffic_; }
  std::size_t bytes_held() const;
  std::size_t bytes_high_water() const;
  std::int64_t parameter_count() const;
  std::int64_t updates() const noexcept { return steps_; }

  /// For checkpoints, between steps. Values may be written; restore() then makes use of them.
  ModelState held();
  /// What steps depend on beside the values: steps done, the loss scale.
  std::map<std::string, double> counters() const;
  /// Collective. Takes counters, and what was written into held(). Throws Error{invalid_argument}
  /// naming a counter that is missing.
  void restore(const std::map<std::string, double>& counters);

 private:
  /// Slots for one kind of buffer.
  struct Arenas {
    std::optional<memory::Arena> parameters, gradients, narrowed, sums;
  };

  void check_unit(int unit) const;
  void check_between_passes() const;
  PersistentSplit::Place place(int unit, int index) const;
  Unit& at(int unit) { return *units_[static_cast<std::size_t>(unit)]; }
  const Unit& at(int unit) const { return *units_[static_cast<std::size_t>(unit)]; }
  /// The unit whose parameters that one uses: itself, or what it is tied to.
  int values_of(int unit) const {
    return order_.declared().values_of[static_cast<std::size_t>(unit)];
  }
  Spread spread_of(std::size_t unit);
  void open_encoded_sums(const QueueKind& queues);
  /// Those that are not tied.
  std::vector<Unit*> with_parameters() const;
  const OptimizerKind& optimizer_kind() const { return optimizer_named(options_.optimizer.name); }
  int optimizer_states() const { return static_cast<int>(optimizer_kind().states.size()); }
  void gather(const std::vector<int>& units);
  bool adds_in_tree() const { return options_.gradient_order == GradientOrder::tree; }
  GradientProgress no_progress() const;
  void expect_gradient(const Visit& visit);
  int microbatch_of(int unit, std::optional<int> named) const;
  void finish_microbatch(int unit, int microbatch);
  void start_first_sum(int unit);
  void finish_first_sums(const std::vector<int>& units);
  bool limits_second_sum(int unit) const;
  void limit_second_sums(int unit);
  bool may_finish_first_sum(int unit);
  void advance_reductions();
  void finish_reductions();
  void add_tied_gradient(int unit);
  void add_over_parts(std::span<SquareSum> sums);
  void update(float learning_rate, double scale);

  FsdpOptions options_;
  PersistentSplit split_;
  Sharding sharding_;
  Mesh mesh_;
  std::unique_ptr<Optimizer> optimizer_;
  LossScaler scaler_;
  GatherSchedule order_;
  SumsUnderWay reductions_;
  Traffic traffic_;
  MemoryPlan memory_plan_;
  AxisCommunicator replicas_, shards_, everyone_;
  EncodedAxis encoded_;
  Arenas arenas_;
  std::unique_ptr<io::Tier> state_tier_;
  std::unique_ptr<io::Tier> shard_tier_;      // null: memory that peers can map
  std::vector<std::unique_ptr<Unit>> units_;  // in split_'s order
  GradientProgress progress_;
  bool finished_ = false;   // gradients are summed, and apply() comes next
  std::int64_t steps_ = 0;  // updates done
};

}  // namespace sprat::fsdp
