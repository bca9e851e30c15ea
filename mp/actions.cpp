#include "mp/actions.hpp"

namespace sprat::mp {

TraceRow row_of(Op op) {
  switch (op) {
    case Op::send_forward:
    case Op::send_backward:
      return TraceRow::messages;
    case Op::unshard:
    case Op::reshard:
      return TraceRow::gathers;
    case Op::reduce:
      return TraceRow::reduces;
    case Op::store:
    case Op::load:
      return TraceRow::tier;
    case Op::forward:
    case Op::backward:
    case Op::backward_input:
    case Op::backward_weight:
    case Op::recompute:
    case Op::receive_forward:
    case Op::receive_backward:
    case Op::overlap:
      break;
  }
  return TraceRow::computes;
}

ActionParts parts_of(const Action& action) {
  if (action.op != Op::overlap) {
    return {.parts = {action}, .count = 1};
  }
  return {
      .parts = {Action{.op = Op::forward, .stage = action.stage, .microbatch = action.microbatch},
                Action{.op = Op::backward,
                       .stage = action.other_stage,
                       .microbatch = action.other_microbatch}},
      .count = 2};
}

Action other_end_of(const Action& message) {
  Action other = message;
  // Outputs go to the stage behind and gradients to the one before, so of each two ends the
  // stages differ by one.
  switch (message.op) {
    case Op::send_forward:
      other.op = Op::receive_forward;
      ++other.stage;
      break;
    case Op::receive_forward:
      other.op = Op::send_forward;
      --other.stage;
      break;
    case Op::send_backward:
      other.op = Op::receive_backward;
      --other.stage;
      break;
    case Op::receive_backward:
      other.op = Op::send_backward;
      ++other.stage;
      break;
    case Op::forward:
    case Op::backward:
    case Op::backward_input:
    case Op::backward_weight:
    case Op::recompute:
    case Op::unshard:
    case Op::reshard:
    case Op::reduce:
    case Op::store:
    case Op::load:
    case Op::overlap:
      break;
  }
  return other;
}

}  // namespace sprat::mp
