// A unit's gradient on one rank: full while it is made, then summed over ranks, hop by hop.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "fsdp/axis_communicator.hpp"
#include "fsdp/unit_home.hpp"
#include "fsdp/unit_states.hpp"
#include "memory/arena.hpp"

namespace sprat::fsdp {

/// Not thread-safe. The calls that start or finish a sum are collective.
class UnitGradient {
 public:
  UnitGradient(const UnitCut& cut, const UnitHome& home);

  std::size_t kept_bytes() const { return kept_.bytes().size(); }
  GradientTarget target(int index);

  /// The first sum of a gradient that is whole. It may need one more: finish_first_sum() starts it
  /// if `last`, and finish_sums() ends it.
  void start_first_sum();
  bool first_sum_done() const { return first_sum_.done(); }
  void finish_first_sum(bool last);
  void finish_sums();

  /// Summed, of the part that this rank updates.
  std::span<float> own() const;
  void fetch() const { kept_.fetch(); }
  void release() const { kept_.release(); }
  /// The next step's gradient starts from nothing.
  void end_step();

 private:
  std::span<float> full() const;
  void begin();
  void complete();
  void start_scatter_to_shard(AxisCommunicator& axis_communicator);
  void start_second_sum();
  ConstElements whole();

  const UnitCut& cut_;
  const UnitHome& home_;
  std::vector<Hop> hops_;
  KeptArray kept_;  // f32: a shard, or all
  memory::Lease full_slot_, narrowed_, addend_;
  std::vector<bool> fresh_;  // by parameter: nothing has been written yet
  State<GradientState> state_;
  int sums_ended_ = 0;  // first sums of this step, which lie in kept_
  Pending first_sum_, second_sum_;
};

}  // namespace sprat::fsdp
