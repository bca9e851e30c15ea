// Which memory a model's steps need, known before the first: what is kept, and which buffers share
// slots.
#pragma once

#include <span>
#include <vector>

#include "fsdp/plan/lifetimes.hpp"
#include "fsdp/plan/placement.hpp"
#include "memory/arena.hpp"
#include "sprat/fsdp.hpp"

namespace sprat::fsdp {

/// How gradients live on such a row.
GradientRules gradient_rules(const Sharding& sharding, const FsdpOptions& options);

/// The slots of each kind of buffer, and the sum of all.
struct SlotPlans {
  memory::SlotPlan parameters, gradients, narrowed, sums;
  MemoryPlan memory;
};
/// `shardings` is by unit of `order`, whose visited ones share one; `states` counts the optimizer's
/// arrays.
SlotPlans plan_memory(const Visits& order, std::span<const Sharding> shardings,
                      const FsdpOptions& options, int states);

}  // namespace sprat::fsdp
