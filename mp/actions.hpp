// What actions are made of and what they answer to.
#pragma once

#include <array>
#include <cstddef>

#include "mp/schedule.hpp"
#include "sprat/trace.hpp"

namespace sprat::mp {

constexpr bool is_send(Op op) { return op == Op::send_forward || op == Op::send_backward; }
constexpr bool is_receive(Op op) { return op == Op::receive_forward || op == Op::receive_backward; }
/// Gives the gradient of the stage's input.
constexpr bool gives_input_gradient(Op op) {
  return op == Op::backward || op == Op::backward_input;
}
/// Adds to the gradients of the stage's parameters.
constexpr bool gives_weight_gradient(Op op) {
  return op == Op::backward || op == Op::backward_weight;
}
/// Of no micro-batch.
constexpr bool is_of_stage_alone(Op op) {
  return op == Op::unshard || op == Op::reshard || op == Op::reduce;
}

/// What it is shown among. A receive holds its rank, and so stands among what the rank computes.
TraceRow row_of(Op op);

/// A forward and a backward for an overlap; else the action.
struct ActionParts {
  std::array<Action, 2> parts{};
  std::size_t count = 1;

  const Action* begin() const noexcept { return parts.data(); }
  const Action* end() const noexcept { return parts.data() + count; }
};
ActionParts parts_of(const Action& action);

/// The receive that takes what this sends, or the send that fills what this receives. Its stage may
/// lie beyond the model's ends.
Action other_end_of(const Action& message);

}  // namespace sprat::mp
