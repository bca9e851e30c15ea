// How a run is spread over ranks, and what is asked of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "planning/machine.hpp"
#include "planning/model_shape.hpp"
#include "sprat/buffer.hpp"
#include "sprat/fsdp.hpp"

namespace sprat::planning {

/// What is to be trained, on what.
struct PlanRequest {
  ModelShape model;
  TrainingMachine machine;
  int hosts = 1;
  std::int64_t sequence = 2048;      ///< Tokens of a sample.
  std::int64_t batch_sequences = 1;  ///< Samples of a step, over all ranks.
  DType precision = DType::bf16;     ///< Of parameters and activations; updates are of f32.
  DType wire = DType::bf16;          ///< As what gradients travel first.
  /// `tree`: only arrangements whose bits do not depend on where ranks and micro-batches lie.
  GradientOrder gradient_order = GradientOrder::sequence;
  int prefetch_units = 1;

  int ranks() const { return hosts * machine.network.ranks; }
};

/// Throws Error{invalid_argument} where ranks, sequences or tokens are beyond what is planned: so
/// many that bytes of them were no numbers any more.
void check_request(const PlanRequest& request);

/// One way to do it. Degrees are by SMP's letters.
struct Arrangement {
  int tensor = 1;                ///< T: ranks that a layer is cut among.
  int pipeline = 1;              ///< P: stages.
  int shards = 1;                ///< S: ranks that share one copy of the states.
  int context = 1;               ///< C: ranks of S that a sequence is cut among.
  std::string strategy = "ddp";  ///< A row of fsdp's table.
  bool recompute = false;        ///< Each block from its input.
  bool offload = false;          ///< Checkpoints leave the device until their backward.
  int microbatches = 1;
  /// SMP's order of the axes over ranks: "DPT" (cluster), or "PDT", whose data ranks are nearer.
  std::string placement = "DPT";

  friend bool operator==(const Arrangement&, const Arrangement&) = default;
};

/// D: ranks that have the same layers; R = D / S of them are replicas.
int data_ranks(const PlanRequest& request, const Arrangement& arrangement);
int replicas(const PlanRequest& request, const Arrangement& arrangement);
/// Tokens that a rank computes at once, and samples they are of.
std::int64_t microbatch_sequences(const PlanRequest& request, const Arrangement& arrangement);
std::int64_t microbatch_tokens(const PlanRequest& request, const Arrangement& arrangement);

/// Why the request's ranks, model or batch cannot be spread so, with the values and what would do;
/// empty if they can.
std::string refusal(const PlanRequest& request, const Arrangement& arrangement);

/// Why no configuration of SMP's says this; empty if one does.
std::string smp_refusal(const Arrangement& arrangement);

/// "T8 P2 S16 R1 C1, zero1, 4 micro-batches of 7, recompute".
std::string describe(const PlanRequest& request, const Arrangement& arrangement);
/// How much of SMP's techniques it takes, in the order in which they are advised; of plans that
/// take as long the one with less is better.
int complexity(const Arrangement& arrangement);

/// Ranks of one axis, as they lie over hosts.
struct GroupPlace {
  int ranks = 1;
  int per_host = 1;  ///< Of the group.
  int hosts = 1;
  /// Groups of the same axis that have ranks on one host, and so share its rails.
  int groups_per_host = 1;
};
enum class GroupAxis { tensor, pipeline, shard, replica, context, data };
GroupPlace place_of(const PlanRequest& request, const Arrangement& arrangement, GroupAxis axis);

}  // namespace sprat::planning
