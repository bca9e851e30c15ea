// Passes: each takes a schedule and gives one that moves, frees or makes anew what the first only
// computes with. Take those that are wanted in the order of this file.
#pragma once

#include <functional>

#include "mp/schedule.hpp"

namespace sprat::mp {

/// Computes a forward once more, right before the first action of its backward, where its tape was
/// dropped.
Schedule recompute(const Schedule& schedule,
                   const std::function<bool(int stage, int microbatch)>& dropped);

/// Stores each tape after its forward and loads it ahead of its backward, but those that stay by
/// keep_last or are needed again within the horizon.
Schedule offload(const Schedule& schedule, const Offload& how);

/// Sums each stage's gradients right after their last contribution.
Schedule reduce(const Schedule& schedule);

/// Gathers parameters ahead of computation, at most those of `stages` stages at once on a rank, and
/// drops those that are needed last. Throws Error{invalid_argument} if an action needs more.
Schedule unshard(const Schedule& schedule, int stages);

/// Puts sends and receives between ranks, such that sends may all wait for their receives: it runs
/// at message capacity 0. Throws Error{invalid_argument} if there are messages, or if ranks wait
/// for each other for ever.
Schedule communicate(const Schedule& schedule);

}  // namespace sprat::mp
