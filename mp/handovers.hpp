// What one rank of a pipeline hands over and is handed, as buffers with lives: planned beforehand,
// so that memory is known before the first step and no rank waits for another for ever.
#pragma once

#include <cstddef>
#include <vector>

#include "memory/arena.hpp"
#include "mp/schedule.hpp"

namespace sprat::mp {

/// One micro-batch's output of a stage on its way to the next, or the gradient of it on its way
/// back, as one rank sees it.
struct Handover {
  bool forward = true;
  int stage = 0;  ///< Whose output, or the gradient of whose output.
  int microbatch = 0;
  int from = 0, to = 0;  ///< Ranks; the same one where neighbours share it.
  std::size_t most_elements = 0;
  /// Places in the rank's actions: `from` needs memory before the action at `begin`, and after that
  /// at `end` - 1 it is free again; at `end`, a send is waited for.
  std::size_t begin = 0, end = 0;
};

struct HandoverPlan {
  std::vector<Handover> handovers;
  /// By place, one more than there are actions: which begin or end before the action there.
  std::vector<std::vector<int>> begin, end;
  memory::SlotPlan slots;

  /// Of the stage that computes: what it reads and writes; -1 at the ends of the model. All four
  /// numbers are indices of handovers.
  int input(int stage, int microbatch) const;
  int output(int stage, int microbatch) const;
  int output_gradient(int stage, int microbatch) const;
  int input_gradient(int stage, int microbatch) const;

  int microbatches = 0;
  std::vector<int> by_output, by_gradient;  ///< By stage and micro-batch.
};

/// Bytes before the elements of each handover, for its length; elements lie on a cache line.
constexpr std::size_t handover_header_bytes = 64;

/// For a valid schedule that has its messages and runs at message capacity 0. Receives begin up to
/// `ahead` computations before their place, sends end up to as many behind it.
HandoverPlan plan_handovers(const Schedule& schedule, int rank,
                            const std::vector<std::size_t>& most_elements, int ahead);

}  // namespace sprat::mp
