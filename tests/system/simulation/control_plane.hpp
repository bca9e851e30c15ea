// What the control plane costs as jobs grow: the real coordinator and the real frames, of jobs of
// thousands of ranks, counted.
#pragma once

#include <cstddef>

namespace sprat::simulation {

/// Frames and bytes between one rank and the coordinator, the mean over ranks.
struct Traffic {
  double frames = 0, bytes = 0;
};

/// A job that joins, stalls, and leaves.
struct ControlPlaneCost {
  int ranks = 0, hosts = 0;
  int rounds = 0;          ///< Of joining: how many times a rank waits for an answer.
  Traffic said, heard;     ///< While joining.
  Traffic leaving;         ///< Heard, if all ranks leave within a second.
  double group_stall = 0;  ///< Frames of all ranks when the ranks of one host wait for one of them.
  double job_stall = 0;    ///< The same of all ranks.
  double loss = 0;         ///< Frames of all ranks when one dies while all join.
  double sent_bytes = 0;   ///< By the coordinator to all ranks, for joining.
  double cpu_seconds = 0;  ///< Of the coordinator, encoding included, for joining.
  double rank_seconds = 0;  ///< Of one rank, to read what it hears while joining.
};

/// Of hosts with so many ranks each.
ControlPlaneCost measure_control_plane(int hosts, int ranks_per_host);

/// A table of jobs from 64 ranks on, 8 a host, each four times as large as the one before, up to
/// `most` ranks.
void print_control_plane(int most);

}  // namespace sprat::simulation
