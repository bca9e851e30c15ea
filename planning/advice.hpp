// What SMP's and SMDDP's documents advise, as rules that look at a plan.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planning/search.hpp"

namespace sprat::planning {

/// A row of the table: one sentence of the documents that can be checked.
struct AdviceRule {
  std::string_view name;    ///< "tensor_inside_host"
  std::string_view advice;  ///< What the documents say, in our words.
  /// What is to be done about this plan, with its numbers; empty: it does as advised.
  std::string (*judge)(const PlanRequest& request, const Plan& plan);
};
std::span<const AdviceRule> advice_rules();

struct Advice {
  std::string_view rule;
  std::string text;
};
/// What all rules have to say, in the order of the table.
std::vector<Advice> advice_on(const PlanRequest& request, const Plan& plan);

}  // namespace sprat::planning
