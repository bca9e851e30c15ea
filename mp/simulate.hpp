// What a schedule takes, in virtual time: when each action starts and ends, which part of the time
// ranks stand idle, and how many activations they hold.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "mp/schedule.hpp"

namespace sprat::mp {

/// What one micro-batch costs on one stage; seconds of one core, bytes.
struct StageCosts {
  double forward = 1, backward_input = 1, backward_weight = 1;  ///< A backward is the sum of two.
  double recompute = 1;
  double store = 0, load = 0;          ///< Of a tape, to and from the tier.
  double unshard = 0, reduce = 0;      ///< Of the stage, not of a micro-batch.
  std::uint64_t activation_bytes = 1;  ///< The tape, from the forward's start to the last backward.
  std::uint64_t input_bytes = 0;   ///< What is kept of the tape where the forward is recomputed.
  std::uint64_t output_bytes = 0;  ///< A message to the next stage; its gradient is as long.
};

struct PipelineCosts {
  std::vector<StageCosts> stages;
  double latency = 0, seconds_per_byte = 0;  ///< Of a message between two ranks.
  int cores = 0;  ///< Ranks that compute at the same time share them equally; 0: one for each.
};

/// Every stage the same.
PipelineCosts uniform_costs(const Schedule& schedule, const StageCosts& stage);

/// Messages from one rank to another, in one direction, that may be sent before their receives are
/// reached. 0: a send holds its rank until the receiver stands at the receive.
constexpr int unbounded_messages = std::numeric_limits<int>::max();

/// The model: a rank starts its actions in order and computes one at a time. A receive lasts until
/// its message is there. Sends, stores, loads, gathers and reductions go on beside computation: the
/// messages of a pair of ranks, and each kind of the others on a rank, one after another. A
/// backward beside a forward takes as long as both.
///
/// A schedule of computation alone has messages as if each were sent when its producer ends and
/// received where it is needed. Throws Error{invalid_argument} if the actions are not of this
/// schedule's stages and micro-batches, and where no rank can go on, naming who waits for what.
Timeline simulate(const Schedule& schedule, const PipelineCosts& costs,
                  int message_capacity = unbounded_messages);

}  // namespace sprat::mp
