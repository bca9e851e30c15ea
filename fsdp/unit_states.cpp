// The moves, one line for each state they begin at.
#include "fsdp/unit_states.hpp"

namespace sprat::fsdp {

const char* name(ParameterState state) {
  switch (state) {
    case ParameterState::kept:
      return "kept";
    case ParameterState::refreshing:
      return "refreshing";
    case ParameterState::gathering:
      return "gathering";
    case ParameterState::full:
      return "full";
  }
  return "?";
}

const char* name(GradientState state) {
  switch (state) {
    case GradientState::none:
      return "none";
    case GradientState::written:
      return "written";
    case GradientState::first_sum:
      return "first_sum";
    case GradientState::between_sums:
      return "between_sums";
    case GradientState::sum_of_replicas:
      return "sum_of_replicas";
    case GradientState::summed:
      return "summed";
  }
  return "?";
}

bool may_follow(ParameterState from, ParameterState to) {
  switch (from) {
    case ParameterState::kept:
      return to == ParameterState::gathering || to == ParameterState::refreshing;
    case ParameterState::refreshing:
      return to == ParameterState::kept;
    case ParameterState::gathering:
      return to == ParameterState::full;
    case ParameterState::full:
      return to == ParameterState::kept;
  }
  return false;
}

bool may_follow(GradientState from, GradientState to) {
  switch (from) {
    case GradientState::none:
      return to == GradientState::written;
    case GradientState::written:
      return to == GradientState::first_sum;
    case GradientState::first_sum:
      return to == GradientState::between_sums || to == GradientState::sum_of_replicas ||
             to == GradientState::summed;
    case GradientState::between_sums:
      return to == GradientState::written;
    case GradientState::sum_of_replicas:
      return to == GradientState::summed;
    case GradientState::summed:
      return to == GradientState::none;
  }
  return false;
}

}  // namespace sprat::fsdp
