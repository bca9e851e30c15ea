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
  /// Some rank's plan may read a copy of a peer's input (Plan::share_snapshot). Said here, as a
  /// rank that is alone on its host does not see it of its own plan, and all must cut alike.
  bool snapshots = false;
};

/// Every algorithm, in the order of the files of collectives/algorithms/.
std::span<const Algorithm* const> all_algorithms() noexcept;
/// Null if there is none.
const Algorithm* find_algorithm(Collective collective, std::string_view name) noexcept;

}  // namespace sprat::collectives
