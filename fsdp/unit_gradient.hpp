// A unit's gradient on one rank: full while it is made, then summed over ranks, hop by hop.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "fsdp/axis_communicator.hpp"
#include "fsdp/full_gradient.hpp"
#include "fsdp/unit_home.hpp"
#include "fsdp/unit_states.hpp"
#include "memory/arena.hpp"

namespace sprat::fsdp {

/// Not thread-safe. The calls that start or finish a sum are collective.
class UnitGradient {
 public:
  UnitGradient(const UnitCut& cut, const UnitHome& home);

  std::size_t kept_bytes() const { return kept_.bytes().size() + residuals_.bytes().size(); }
  /// A backward of that micro-batch begins.
  void expect(int microbatch) { full_.expect(microbatch); }
  GradientTarget target(int index, int microbatch);
  /// The unit's gradient of that micro-batch is whole.
  void finish_microbatch(int microbatch);
  bool is_finished(int microbatch) const { return full_.is_finished(microbatch); }

  /// The first sum of a gradient that is whole. It may need one more: finish_first_sum() starts it
  /// if `last`, and finish_sums() ends it.
  void start_first_sum();
  bool first_sum_done() const { return first_sum_.done(); }
  void finish_first_sum(bool last);
  bool second_sum_done() const { return second_sum_.done(); }
  void finish_sums();

  /// Summed, of the part that this rank updates.
  std::span<float> own() const;
  void fetch() const { kept_.fetch(); }
  void release() const { kept_.release(); }
  /// The next step's gradient starts from nothing.
  void end_step();
  /// Multiplies what error feedback keeps, as when the loss scale changes; 0 forgets it.
  void scale_residuals(float factor);

 private:
  void write();
  void start_scatter_to_shard(AxisCommunicator& axis_communicator);
  void start_second_sum();
  ConstElements whole();
  Pending start_encoded(const Hop& hop, std::span<float> whole, std::span<float> sum);
  Residuals residuals() const;

  const UnitCut& cut_;
  const UnitHome& home_;
  std::vector<Hop> hops_;
  KeptArray kept_;  // f32: a shard, or all
  FullGradient full_;
  EncodedHop hop_;       // of the hop whose wire has block scales, if one has
  KeptArray residuals_;  // f32: of what is sent, then of what is given back
  memory::Lease narrowed_, addend_;
  State<GradientState> state_;
  int sums_ended_ = 0;  // first sums of this step, which lie in kept_
  Pending first_sum_, second_sum_;
};

}  // namespace sprat::fsdp
