// What a step takes, by part.
#pragma once

#include <string>
#include <vector>

#include "planning/group_cost.hpp"
#include "planning/rehearsal.hpp"

namespace sprat::planning {

/// Seconds of the rank that computes longest; total() is the step.
struct StepTime {
  double compute = 0;     ///< Forwards and backwards.
  double recompute = 0;   ///< Forwards once more.
  double tensor = 0;      ///< What tensor ranks exchange; nothing hides it.
  double context = 0;     ///< Keys and values that attention does not hide.
  double parameters = 0;  ///< Gathers and first sums that passes do not hide,
  double gradients = 0;   ///< sums at the step's end, and parameters gathered after the update.
  double additions = 0;   ///< Of micro-batches' gradients, by gradient_order tree.
  double messages = 0;    ///< Between stages, as far as a rank waits for them.
  double bubble = 0;      ///< Waiting for other stages to compute.
  double stall = 0;       ///< For tapes on their way back.
  double optimizer = 0;
  double loader = 0;  ///< Reading that is slower than all of that.

  double total() const {
    return compute + recompute + tensor + context + parameters + gradients + additions + messages +
           bubble + stall + optimizer + loader;
  }
};
struct TimePart {
  const char* name;
  double StepTime::*seconds;
};
/// In the order of total().
const std::vector<TimePart>& time_parts();

/// The model. A rank multiplies at the machine's rate, and where that was measured what layers keep
/// and their weights pass memory beside it; tensor ranks gather and scatter the stream
/// around attention and MLP (SMP's optimize "memory"). Units are gathered and summed beside the
/// passes in the order of fsdp's GatherSchedule, a collective at a time, by mp's simulator, in
/// which each layer is a stage; so a stage's forward and backward have their exposed part. The same
/// simulator plays these over the pipeline. An update reads and writes 30 bytes an element. Read
/// planning/README.md for what it leaves out.
StepTime time_of(Rehearsals& rehearsals, GroupCost& groups, const Arrangement& arrangement);
/// The forwards and backwards of a step as a Chrome trace, in the form of measured ones: a rank is
/// a stage of one pipeline. Gathers and sums are in what they make passes longer by; what follows
/// the last backward is not shown.
std::string trace_of(const PlanRequest& request, const Arrangement& arrangement);
/// Less than or as much as time_of(...).total(), and quick: computing and tensor ranks alone, in a
/// pipeline without any wait beside its filling and draining.
double least_time(Rehearsals& rehearsals, GroupCost& groups, const Arrangement& arrangement);

/// Tokens a second of the job, and the share of all devices' peak that model FLOPs make.
double tokens_per_second(const PlanRequest& request, double step_seconds);
double utilisation(const PlanRequest& request, double step_seconds);

}  // namespace sprat::planning
