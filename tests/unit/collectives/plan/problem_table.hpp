// The problems that every algorithm is held against.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collectives/plan/algorithm.hpp"
#include "collectives/plan/problem.hpp"

namespace sprat::collectives {

/// How ranks lie on hosts.
struct Placement {
  const char* name;
  int (*host_of)(int rank, int ranks);
};
const std::vector<Placement>& placements();
std::shared_ptr<const Grouping> place(const Placement& placement, int ranks);

/// The element types that make a difference to plans: accumulated as they are, widened, widened and
/// kept.
struct Types {
  DType input, output;
};

struct Case {
  Problem problem;
  std::vector<Problem> each;  ///< As each rank has it.
  std::string label;          ///< For failure messages.
};

/// Every problem that the algorithm fits: ranks x placements x counts x types x roots x block
/// counts. Ranks are 1..33, under a sanitizer those of them where trees and rings change shape;
/// from 18 on only ranks and placements vary.
void for_each_case(const Algorithm& algorithm, const std::function<void(const Case&)>& body);

/// Whether the output may lie over the input, as plans see it.
bool may_alias(const Problem& problem);

}  // namespace sprat::collectives
