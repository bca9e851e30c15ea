// What the planners of both passes and ways write their actions with.
#pragma once

#include <cstddef>
#include <optional>

#include "mp/context/plan.hpp"

namespace sprat::mp::context {

/// Something under way: the number of the action that started it. Nothing: it is over, or never
/// began.
using Started = std::optional<std::size_t>;

class PlanBuilder {
 public:
  PlanBuilder(int ranks, int rank);

  void add(const Action& action) { plan.actions.push_back(action); }
  Started start(const Action& action);
  /// Waits, once.
  void finish(Started& started);
  /// A chunk of queries of this rank looks at a chunk of keys.
  void attend(int query_chunk, const Action& keys);
  /// Both halves by collectives: the places of lower chunks, by rank, then those of upper ones.
  void place_halves();

  Plan plan;
};

/// Where a chunk lies once its half is gathered: by its owner's rank.
int gathered_place(int chunk, int ranks);

}  // namespace sprat::mp::context
