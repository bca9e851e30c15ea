// One unit at run time: what this rank keeps of it, its full buffers while they are needed, and
// what is under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fsdp/axis_communicator.hpp"
#include "fsdp/model_state.hpp"
#include "fsdp/optimizer.hpp"
#include "fsdp/plan/layout.hpp"
#include "fsdp/plan/placement.hpp"
#include "io/tier.hpp"
#include "memory/arena.hpp"
#include "sprat/fsdp.hpp"

namespace sprat::fsdp {

/// What all units of a model share; everything outlives them.
struct UnitHome {
  Sharding sharding;
  AxisCommunicator* axis_communicators[2];  ///< By Axis.
  int rank = 0;                             ///< Of the mesh.
  const FsdpOptions& options;
  bool every_micro_step = false;  ///< Gradients are summed in each, into shards.
  int states = 0;                 ///< Arrays of the optimizer's state.
  Arena* parameter_slots;
  Arena* gradient_slots;
  Arena* narrowed_slots;
  Arena* sum_slots;
  io::Tier* state_tier;
  io::Tier* shard_tier;  ///< Null: memory that peers can map.
  Traffic& traffic;
};

/// Not thread-safe. The calls that start or finish an operation are collective.
class Unit {
 public:
  /// Lays the unit out and fills what this rank keeps. `id` is its number in the arenas.
  Unit(const UnitSpec& spec, int id, const UnitHome& home);

  const std::string& name() const { return spec_->name; }
  const FlatLayout& layout() const { return layout_; }
  /// Throws Error{invalid_argument} if there is no parameter `index`.
  const FlatItem& item(int index) const;
  /// Blocks of what this rank updates.
  std::size_t blocks() const { return own_.count / block_elements; }
  /// Bytes this rank keeps of the unit between steps.
  std::size_t kept_bytes() const;
  StoredUnit held();

  /// A gather comes soon: the shard is brought near, if it is far.
  void fetch_shard();
  /// Starts to make the parameters full; they are once finish_gather() returns.
  void start_gather();
  void finish_gather();
  /// Lets go of the full parameters, if the unit does not keep them anyway.
  void drop();
  ConstElements parameter(int index) const;

  GradientTarget gradient_target(int index);
  /// The first sum of a gradient that is whole. It may need one more: finish_first_sum() starts it
  /// if `last`, and finish_sums() ends it.
  void start_first_sum();
  bool first_sum_done() const { return first_sum_.done(); }
  void finish_first_sum(bool last);
  void finish_sums();

  /// The gradient is read next, or the one after.
  void fetch_gradient();
  /// sums.size() is blocks().
  void sum_squares(std::span<double> sums);
  /// Updates this rank's part, and starts to make what ranks keep of parameters whole again.
  void update(const Optimizer& optimizer, std::int64_t step);
  /// The update comes next, or the one after: state that is far is brought near.
  void fetch_state();
  /// The same from parameters that were written through held().
  void refresh(std::int64_t step);
  /// The next step's gradients start from nothing.
  void end_step() { adds_ = false; }

 private:
  std::span<std::byte> keep(std::size_t bytes, io::Tier* tier);
  void fill();
  void release_gradient();
  void release_state();
  std::span<float> values(std::size_t state);
  std::span<float> own_gradient() const;
  std::span<float> full_gradient();
  void begin_gradient();
  void complete_gradient();
  /// A gradient that stays full, as it is or in a narrowed copy.
  ConstElements kept_gradient();
  Elements kept(std::size_t offset, std::size_t count);

  const UnitSpec* spec_;
  int id_;
  UnitHome home_;
  bool gathers_, shards_gradients_;
  std::vector<Hop> hops_;
  OptimizerPart part_;
  FlatLayout layout_;
  ShardLayout own_;        // what this rank updates
  std::size_t shard_ = 0;  // flat offset of this rank's shard, where anything is cut by shards
  // What stays between steps. Parts are in the tier of shards; what is whole is in memory.
  std::vector<Memory> memories_;
  io::Tier *parameter_tier_, *gradient_tier_;
  std::span<std::byte> parameters_;       // of options.parameter_dtype: a shard, or all
  std::span<float> gradients_;            // a shard, or all
  std::span<float> masters_;              // of the own part, if parameters are narrower than f32
  std::vector<std::span<float>> states_;  // of the own part

  Lease full_parameters_, full_gradients_, narrowed_, sum_;
  std::vector<bool> fresh_;   // by parameter: nothing has been written yet
  bool making_ = false;       // a gradient is being made
  bool adds_ = false;         // an earlier micro-step's sum lies in gradients_
  bool reads_shard_ = false;  // a gather was started and not finished
  Pending gather_, refresh_, first_sum_, second_sum_;
};

}  // namespace sprat::fsdp
