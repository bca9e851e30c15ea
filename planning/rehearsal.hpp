// One arrangement taken apart by the planners that would run it: stages, what each rank does in
// which order, which units it gathers when.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "fsdp/plan/memory_plan.hpp"
#include "fsdp/plan/visits.hpp"
#include "mp/schedule.hpp"
#include "planning/arrangement.hpp"

namespace sprat::planning {

/// Layers of one stage, the last excluded.
struct StageRange {
  int first = 0, end = 0;
  friend auto operator<=>(const StageRange&, const StageRange&) = default;
};

/// What does not depend on a rank's number beside its place in the pipeline. Schedules and cuts are
/// remembered: many arrangements have the same. One thread at a time.
class Rehearsals {
 public:
  explicit Rehearsals(const PlanRequest& request) : request_(request) {}

  /// Layers as a tensor rank has them.
  const std::vector<LayerCost>& layers(int tensor);
  /// Where the chain of layers is cut, by stage: mp's cut, with no limit of memory.
  const std::vector<StageRange>& stages(int pipeline);
  /// SMP's default schedule.
  const mp::Schedule& schedule(int pipeline, int microbatches);
  /// As many elements of one output as a rank's slots for messages take at most, by rank.
  const std::vector<double>& message_slots(int pipeline, int microbatches);

  const PlanRequest& request() const { return request_; }

 private:
  PlanRequest request_;
  std::map<int, std::vector<LayerCost>> layers_;
  std::map<int, std::vector<StageRange>> stages_;
  std::map<std::pair<int, int>, mp::Schedule> schedules_;
  std::map<std::pair<int, int>, std::vector<double>> message_slots_;
};

/// Of a pipeline's step so many micro-batches show all: what is held at a time, and in which order,
/// repeats once the pipeline is full. By gradient_order tree a power of two, behind which each
/// doubling holds one sum of each unit more.
int rehearsed_microbatches(const PlanRequest& request, const Arrangement& arrangement);

/// The row of fsdp's table, and what it is told.
fsdp::Sharding sharding_of(const PlanRequest& request, const Arrangement& arrangement);
FsdpOptions options_of(const PlanRequest& request, const Arrangement& arrangement,
                       int microbatches);
/// Uses of a rank's layers, each a unit, in the order of these actions of one stage a rank.
std::vector<Visit> visits_of(const StageRange& stage, const std::vector<mp::Action>& actions);
/// Units of a stage with their padded sizes.
fsdp::Visits units_of(Rehearsals& rehearsals, const Arrangement& arrangement,
                      const StageRange& stage, const std::vector<mp::Action>& actions);

}  // namespace sprat::planning
