// One way to carry out one collective.
#pragma once

#include <span>
#include <string_view>

#include "collectives/plan/plan.hpp"
#include "collectives/plan/problem.hpp"

namespace sprat::collectives {

/// An entry of the table. `plan` and `cost` are pure.
struct Algorithm {
  Collective collective;
  const char* name;
  const char* summary;  ///< One sentence: when it is good.
  ReduceOrder order;    ///< Of what reduces; canonical for the rest.
  bool (*fits)(const Problem& problem);
  void (*plan)(const Problem& problem, Plan& plan);
  Cost (*cost)(const Problem& problem);
};

/// Every algorithm, in the order of the files of collectives/algorithms/.
std::span<const Algorithm* const> all_algorithms() noexcept;
/// Null if there is none.
const Algorithm* find_algorithm(Collective collective, std::string_view name) noexcept;

}  // namespace sprat::collectives
