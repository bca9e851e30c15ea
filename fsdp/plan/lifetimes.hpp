// Which buffers of a training step are needed at the same time, known before the first step.
#pragma once

#include <cstddef>
#include <vector>

#include "fsdp/plan/visits.hpp"
#include "memory/buffers.hpp"

namespace sprat::fsdp {

/// How gradients of a step live.
struct GradientRules {
  /// Full gradients of visited units are borrowed until their first sum has ended.
  bool sharded = false;
  bool every_micro_step = false;         ///< Sums begin in each micro-step, else in the last.
  bool tree = false;                     ///< Micro-batches have buffers of their own.
  bool narrowed = false;                 ///< Gradients that stay full are narrowed into a copy.
  bool encoded_first = false;            ///< First sums have blocks that are staged,
  bool encoded_second = false;           ///< or second ones have, of which as many are under way.
  int in_flight = 1;                     ///< First sums under way at a time,
  std::size_t bucket = ~std::size_t{0};  ///< and the elements that more than one may have.
};

/// The first sums under way, oldest first. Pure: it only counts.
class ReductionOrder {
 public:
  ReductionOrder(const GradientRules& rules, std::vector<std::size_t> elements);
  /// Those whose sums are to end before this unit's begins, oldest first.
  std::vector<int> in_the_way_of(int unit) const;
  /// Adds a unit. Returns those that were in its way, which have ended now.
  std::vector<int> begin(int unit);
  /// Those that end if this unit's sum is to have ended: it and all before it; none if it has.
  std::vector<int> end_through(int unit);
  std::vector<int> end_all();
  /// The oldest under way, or -1.
  int oldest() const { return under_way_.empty() ? -1 : under_way_.front(); }

 private:
  GradientRules rules_;
  std::vector<std::size_t> elements_;
  std::vector<int> under_way_;
};

/// Number `buffer` of a unit's full gradients among the buffers of `units` of them: buffer 0 of
/// each comes first, and is borrowed only if the row shards gradients.
inline int gradient_buffer(int unit, int buffer, int units) { return buffer * units + unit; }

/// When the buffers of a step of this order are needed, with evaluations between; each by unit.
struct Lifetimes {
  std::vector<memory::Lives> parameters;  ///< Full parameters.
  std::vector<memory::Lives> gradients;   ///< Full ones that are borrowed, by gradient_buffer().
  /// Narrowed copies of those that are not, and blocks of either sum.
  std::vector<memory::Lives> narrowed;
  /// Shards' sums that are then added to those of earlier micro-steps.
  std::vector<memory::Lives> sums;
};
Lifetimes lifetimes(const Visits& order, const GradientRules& rules);

}  // namespace sprat::fsdp
