// The best arrangement under the model: branch and bound over all that is feasible.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "planning/memory_model.hpp"
#include "planning/time_model.hpp"

namespace sprat::planning {

struct Plan {
  Arrangement arrangement;
  DeviceMemory memory;
  StepTime time;
};

/// What the user has decided; empty: the search does.
struct Pins {
  std::optional<int> tensor, pipeline, shards, context, microbatches;
  std::optional<bool> recompute, offload;
  std::optional<std::string> strategy;
  bool smp_only = false;  ///< What keys of SMP's configuration can say.
};

struct SearchResult {
  /// Fastest first, all within `tolerance` of the best; of equal ones that with less technique.
  std::vector<Plan> plans;
  std::size_t arrangements = 0;  ///< That the rules allow,
  std::size_t simulated = 0;     ///< and of these, whose memory or time was computed in full.
  /// Where nothing fits: what holds least.
  std::optional<Plan> smallest;
};

/// How far behind the best plan others are still told.
inline constexpr double told_share = 0.05;

/// Everything that the rules allow: T a power of two inside of a host, P, S and C powers of two (S
/// also all data ranks), every row of fsdp's table, micro-batches that divide the batch. Throws as
/// check_request().
std::vector<Arrangement> arrangements(const PlanRequest& request, const Pins& pins);

/// Where arrangements() has none: which of the wishes stands in the way and what would do in its
/// place, or how large a batch has to be.
std::string why_none(const PlanRequest& request, const Pins& pins);

/// Exact under memory_of() and time_of(): arrangements are tried in the order of least_time(), and
/// none is left out whose bound is within `tolerance` of the best that was found. Throws
/// Error{invalid_argument} with why_none() if there is none, and as check_request().
SearchResult search(const PlanRequest& request, const Pins& pins = {},
                    double tolerance = told_share);
/// One arrangement, whether it fits or not. Throws Error{invalid_argument} with its refusal(), and
/// as check_request().
Plan evaluate(const PlanRequest& request, const Arrangement& arrangement);

}  // namespace sprat::planning
