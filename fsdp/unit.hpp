// One unit at run time: its shard, its full buffers while they are needed, and what is under way.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "fsdp/layout.hpp"
#include "fsdp/optimizers/adamw.hpp"
#include "fsdp/pool.hpp"
#include "sprat/communicator.hpp"
#include "sprat/fsdp.hpp"

namespace sprat::fsdp {

/// Where a unit lives; everything outlives it.
struct UnitHome {
  const Strategy& strategy;
  Communicator& replicas;  ///< Ranks that hold the same shard.
  Communicator& shards;    ///< Ranks that hold one copy of the model between them.
  BufferPool& pool;
};

/// Not thread-safe. The calls that start or finish an operation are collective.
class Unit {
 public:
  /// Lays the unit out and fills this rank's shard.
  Unit(const UnitSpec& spec, const UnitHome& home);
  /// Waits for what is under way, since it uses this unit's memory.
  ~Unit();
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  const std::string& name() const { return name_; }
  const FlatLayout& layout() const { return layout_; }
  /// Throws Error{invalid_argument} if there is no parameter `index`.
  const FlatItem& item(int index) const;
  /// Blocks of this rank's shard.
  std::size_t blocks() const { return shard_.count / block_elements; }
  /// Bytes this rank keeps of the unit between steps.
  std::size_t kept_bytes() const;

  /// Starts to make the parameters full; they are once finish_gather() returns.
  void start_gather();
  void finish_gather();
  /// Lets go of the full parameters, if the unit does not keep them anyway.
  void drop();
  std::span<const float> parameter(int index) const;

  /// Throws Error{invalid_argument} once the step's reduction has started.
  std::span<float> gradient(int index);
  bool reduction_started() const { return state_ >= GradientState::summing_shards; }
  /// Starts the sum over the ranks that share a copy of the model.
  void start_reduction();
  /// Ends that, frees the full gradient, and starts the sum of shards over the copies.
  void start_replica_reduction();
  /// Ends that: the shard of the gradient is the sum over all ranks.
  void finish_reduction();

  /// sums.size() is blocks().
  void sum_squares(std::span<double> sums) const;
  void update(const AdamWStep& step);
  /// The next step's gradients start from zero.
  void end_step() { state_ = GradientState::untouched; }

 private:
  enum class GradientState { untouched, adding, summing_shards, summing_replicas, reduced };

  void fill(const UnitSpec& spec);
  std::span<float> full_gradient();

  std::string name_;
  UnitHome home_;
  bool sharded_parameters_, sharded_gradients_;
  FlatLayout layout_;
  ShardLayout shard_;
  Memory parameters_, gradients_;  // this rank's shard
  std::vector<float> first_moments_, second_moments_;
  Memory full_parameters_, full_gradients_;  // from the pool; empty when not needed
  GradientState state_ = GradientState::untouched;
  Work gather_, shard_reduction_, replica_reduction_;
};

}  // namespace sprat::fsdp
