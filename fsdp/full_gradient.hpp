// A unit's gradient on one rank before any sum over ranks: made and added up micro-batch by
// micro-batch.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "fsdp/plan/microbatch_tree.hpp"
#include "fsdp/unit_home.hpp"
#include "memory/arena.hpp"

namespace sprat::fsdp {

/// With GradientOrder::sequence what all micro-batches contribute is written into one buffer. With
/// tree each is made in a buffer of its own, and added to others once it is finished. Not
/// thread-safe.
class FullGradient {
 public:
  /// `kept`: where the sum lies on rows that keep full gradients; empty on others, where it lies in
  /// a slot.
  FullGradient(const UnitCut& cut, const UnitHome& home, std::span<float> kept);

  /// A backward of that micro-batch begins. It chooses the buffer, as the plan of memory does.
  void expect(int microbatch);
  GradientTarget target(int index, int microbatch);
  /// Nothing is written in that micro-batch any more.
  void finish(int microbatch);
  bool is_finished(int microbatch) const;

  /// The sum is whole once every micro-batch is finished. Parameters that got no gradient have one
  /// of zero.
  void finish_all();
  std::span<float> sum() const { return buffer(0); }
  /// What comes next starts from nothing. Slots are given back.
  void clear();

 private:
  bool in_tree() const { return home_.options.gradient_order == GradientOrder::tree; }
  /// As which contribution to the tree a micro-batch counts.
  int contribution(int microbatch) const { return in_tree() ? microbatch : 0; }
  MicrobatchTree empty_tree() const;
  std::span<float> buffer(int number) const;
  std::vector<bool>& open(int contribution);
  void zero_gaps(std::span<float> values) const;
  void complete(int contribution);
  void add(const std::vector<MicrobatchTree::Addition>& additions);

  const UnitCut& cut_;
  const UnitHome& home_;
  std::span<float> kept_;
  MicrobatchTree tree_;
  std::vector<memory::Lease> slots_;  // by buffer; none for buffer 0 if it is kept
  /// By contribution that is being made and by parameter: nothing has been written yet.
  std::map<int, std::vector<bool>> fresh_;
};

}  // namespace sprat::fsdp
