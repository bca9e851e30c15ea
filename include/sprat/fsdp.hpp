// Sharded data parallelism: every rank keeps a shard of parameters, gradients and optimizer state.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sprat/communicator.hpp"

namespace sprat {

/// How one of parameters, gradients, optimizer state lies along one mesh axis.
enum class Placement : std::uint8_t { replicated, flat, partial };

/// A row of the placement table: [0] along the replica axis, [1] along the shard axis.
struct Strategy {
  const char* name;  ///< "ddp", "zero3", "hsdp".
  Placement parameters[2], gradients[2], optimizer[2];
};
SPRAT_API std::span<const Strategy> all_strategies() noexcept;

struct ParameterSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  bool decay = true;  ///< Weight decay applies.
  /// Initial value of the element at a row-major index; pure, so that any sharding gives the same.
  std::function<float(std::uint64_t index)> initial;
};

/// Parameters that are gathered together, usually a layer.
struct UnitSpec {
  std::string name;
  std::vector<ParameterSpec> parameters;
};

struct AdamWOptions {
  float beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f, weight_decay = 0.1f;
};

struct FsdpOptions {
  /// Ranks that share one copy of the model; 1 is DDP, world.size() is ZeRO-3, between is HSDP.
  int hybrid_shard_degree = 1;
  /// Units in the order they are visited. A unit may occur more than once in a pass. Empty: every
  /// unit in turn, and the reverse of forward.
  std::vector<int> forward, backward;
  int prefetch_units = 1;  ///< Gathers issued ahead of the unit in use.
  AdamWOptions adamw;
  float clip_norm = 1.0f;  ///< 0: no clipping.
};

struct StepResult {
  double grad_norm = 0;  ///< Before clipping, over the whole model.
  bool skipped = false;  ///< The norm was not finite, so no rank changed anything.
};

/// A model whose units live sharded and are full only while they are used. One thread at a time.
/// A training step is: for each visit of `forward`, acquire, compute, release; the same for
/// `backward`, with gradients added into gradient() and reduce() after a unit's last use; then
/// step().
class SPRAT_API ShardedModel {
 public:
  /// Collective. `world` must outlive the model.
  ShardedModel(Communicator& world, std::vector<UnitSpec> units, FsdpOptions options);
  ~ShardedModel();
  ShardedModel(ShardedModel&&) noexcept;

  /// Makes a unit's parameters full, and starts the gathers of the visits that follow.
  void acquire(int unit);
  /// The unit's full parameters may go once every acquire() has its release().
  void release(int unit);
  /// Full values of parameter `index` of an acquired unit.
  std::span<const float> parameter(int unit, int index) const;
  /// Full gradient of that parameter; zero when first asked for in a step. Add into it.
  std::span<float> gradient(int unit, int index);
  /// This step's gradients of the unit are whole: starts their reduction.
  void reduce(int unit);
  /// Ends the reductions, clips, updates; the mean over ranks of gradients is what is applied.
  StepResult step(float learning_rate);

  std::int64_t parameter_count() const;
  /// The row of the table that hybrid_shard_degree stands for.
  const Strategy& strategy() const noexcept;
  /// Bytes of the longest-lived buffers now, and the most that were ever held.
  std::size_t bytes_held() const;
  std::size_t bytes_high_water() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sprat
