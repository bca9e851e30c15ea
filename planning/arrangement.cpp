// What degrees have to divide, and where groups of ranks lie.
#include "planning/arrangement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "comm/base/check.hpp"

namespace sprat::planning {
namespace {

/// Ranks from one of the axis to the next, right-most letter of the placement fastest. Inside of D
/// shards are next to each other, and inside of those ranks that share sequences.
int stride_of(const PlanRequest& request, const Arrangement& a, GroupAxis axis) {
  const bool data_near = a.placement == "PDT";
  const int data = data_ranks(request, a);
  const int data_stride = data_near ? a.tensor : a.tensor * a.pipeline;
  switch (axis) {
    case GroupAxis::tensor:
      return 1;
    case GroupAxis::pipeline:
      return data_near ? a.tensor * data : a.tensor;
    case GroupAxis::shard:
    case GroupAxis::context:
    case GroupAxis::data:
      return data_stride;
    case GroupAxis::replica:
      return data_stride * a.shards;
  }
  return 1;
}

/// How many ranks a group of the axis has.
int degree_of(const PlanRequest& request, const Arrangement& a, GroupAxis axis) {
  switch (axis) {
    case GroupAxis::tensor:
      return a.tensor;
    case GroupAxis::pipeline:
      return a.pipeline;
    case GroupAxis::shard:
      return a.shards;
    case GroupAxis::context:
      return a.context;
    case GroupAxis::data:
      return data_ranks(request, a);
    case GroupAxis::replica:
      return replicas(request, a);
  }
  return 1;
}

/// Outside of a host nothing hides what tensor ranks exchange; and each has whole heads.
std::string tensor_refusal(const PlanRequest& request, const Arrangement& a) {
  const ModelShape& model = request.model;
  const int tensor = a.tensor;
  const int per_host = request.machine.network.ranks;
  if (per_host % tensor != 0) {
    return fmt::format("tensor_parallel_degree {} does not divide the {} ranks of a host", tensor,
                       per_host);
  }
  if (model.kv_heads() % tensor != 0) {
    return fmt::format("tensor_parallel_degree {} does not divide the {} heads of keys and values",
                       tensor, model.kv_heads());
  }
  return {};
}

/// Ranks that share a sequence read the same samples; all micro-batches are as large.
std::string batch_refusal(const PlanRequest& request, const Arrangement& a) {
  const int shares = data_ranks(request, a) / a.context;
  const std::int64_t parts = std::int64_t{shares} * a.microbatches;
  if (request.batch_sequences % parts != 0) {
    return fmt::format(
        "a batch of {} sequences is no multiple of {}, {} that read their own x {} micro-batches",
        request.batch_sequences, parts, shares, a.microbatches);
  }
  if (a.context > 1 && request.sequence % (2 * a.context) != 0) {
    return fmt::format("a sequence of {} is not cut in 2 x context_parallel_degree {} chunks",
                       request.sequence, a.context);
  }
  return {};
}

/// By docs/fsdp.md's D3: what a rank adds, and what ranks of each axis add, are subtrees of one
/// tree over all micro-batches if their numbers are powers of two.
std::string tree_refusal(const PlanRequest& request, const Arrangement& a) {
  if (request.gradient_order != GradientOrder::tree) {
    return {};
  }
  if (request.wire != DType::f32) {
    return fmt::format(
        "gradient_order tree has the same bits on any ranks where gradients travel as f32, not {}: "
        "each rank's sum would be rounded",
        name(request.wire));
  }
  if (a.context > 1) {
    return fmt::format(
        "gradient_order tree adds a rank's micro-batches before ranks of one sequence: "
        "context_parallel_degree is 1, not {}",
        a.context);
  }
  const int data = data_ranks(request, a);
  for (const int number : {data, a.shards, a.microbatches}) {
    if (!std::has_single_bit(static_cast<unsigned>(number))) {
      return fmt::format(
          "gradient_order tree has the same bits on any ranks where {} data ranks, "
          "hybrid_shard_degree {} and {} micro-batches are powers of two",
          data, a.shards, a.microbatches);
    }
  }
  return {};
}

/// A row of fsdp's table with the degree that it is for.
std::string strategy_refusal(const PlanRequest& request, const Arrangement& a) {
  const int data = data_ranks(request, a);
  const bool one = a.strategy == "ddp", all = a.strategy.starts_with("zero");
  if ((one && a.shards != 1) || (all && a.shards != data)) {
    return fmt::format("strategy {} has {} shards on {} data ranks", a.strategy, a.shards, data);
  }
  if (a.context > 1 && a.shards % a.context != 0) {
    return fmt::format("context_parallel_degree {} does not divide hybrid_shard_degree {}",
                       a.context, a.shards);
  }
  return {};
}

}  // namespace

void check_request(const PlanRequest& request) {
  constexpr std::int64_t most_sequences = 1 << 30, most_tokens = std::int64_t{1} << 32;
  const int per_host = request.machine.network.ranks;
  require(per_host >= 1 && per_host <= most_ranks_of_host, "machine: ", per_host,
          " ranks a host; the plan has 1 to ", most_ranks_of_host, " (",
          request.machine.network.name, ",ranks=N)");
  require(request.hosts >= 1 && request.hosts <= most_ranks / per_host, request.hosts, " hosts of ",
          per_host, " ranks; the plan has 1 to ", most_ranks, " ranks");
  require(request.sequence >= 1 && request.sequence <= most_tokens, "a sequence of ",
          request.sequence, " tokens; it has 1 to ", most_tokens);
  require(request.batch_sequences >= 1 && request.batch_sequences <= most_sequences &&
              request.batch_sequences <= most_tokens / request.sequence,
          "a batch of ", request.batch_sequences, " sequences of ", request.sequence,
          " tokens; the plan has 1 to ", most_sequences, " sequences and up to ", most_tokens,
          " tokens: is --batch-tokens too large?");
}

int data_ranks(const PlanRequest& request, const Arrangement& a) {
  return request.ranks() / (a.tensor * a.pipeline);
}

int replicas(const PlanRequest& request, const Arrangement& a) {
  return data_ranks(request, a) / a.shards;
}

/// Ranks of C compute parts of the same sequences, so there are C times as many for each.
std::int64_t microbatch_sequences(const PlanRequest& request, const Arrangement& a) {
  return request.batch_sequences * a.context / data_ranks(request, a) / a.microbatches;
}

std::int64_t microbatch_tokens(const PlanRequest& request, const Arrangement& a) {
  return microbatch_sequences(request, a) * request.sequence / a.context;
}

std::string refusal(const PlanRequest& request, const Arrangement& a) {
  if (request.ranks() % (a.tensor * a.pipeline) != 0) {
    return fmt::format("T {} x P {} does not divide the {} ranks", a.tensor, a.pipeline,
                       request.ranks());
  }
  const int data = data_ranks(request, a);
  if (data % a.shards != 0) {
    return fmt::format("hybrid_shard_degree {} does not divide the {} data ranks", a.shards, data);
  }
  if (a.pipeline > request.model.layers + 2) {
    return fmt::format("pipeline_parallel_degree {} has more stages than the {} layers", a.pipeline,
                       request.model.layers + 2);
  }
  if (a.offload && !a.recompute) {
    return "offload has no effect without activation checkpointing";
  }
  // The order in which somebody would mend them: machines, model, batch. One after another: a batch
  // is divided by what the rows have been found to be.
  for (const auto refuse : {tensor_refusal, strategy_refusal, batch_refusal, tree_refusal}) {
    if (std::string reason = refuse(request, a); !reason.empty()) {
      return reason;
    }
  }
  return {};
}

std::string smp_refusal(const Arrangement& a) {
  if (a.context > 1) {
    return "sprat.torch cuts no sequences: context_parallel_degree is 1";
  }
  if (a.strategy == "zero2" || a.strategy == "hfsdp") {
    return fmt::format("SMP has no key for strategy {}", a.strategy);
  }
  const bool sharded = a.strategy == "hsdp" || a.strategy == "zero3";
  // SMP v1 has pipelines and sharded optimizer state, v2 sharded parameters, and neither has both.
  return a.pipeline > 1 && sharded ? "SMP shards no parameters of a pipeline's stages" : "";
}

std::string describe(const PlanRequest& request, const Arrangement& a) {
  std::string text =
      fmt::format("T{} P{} S{} R{} C{}, {}, {} micro-batch{} of {}", a.tensor, a.pipeline, a.shards,
                  replicas(request, a), a.context, a.strategy, a.microbatches,
                  a.microbatches == 1 ? "" : "es", microbatch_sequences(request, a));
  text += a.recompute ? ", recompute" : "";
  text += a.offload ? ", offload" : "";
  return text + (a.pipeline > 1 ? ", placement " + a.placement : "");
}

// SMP's order: shard no more than is needed, then checkpoint, then offload, then cut layers, then
// the model, then sequences. Each step weighs more than all before it together.
int complexity(const Arrangement& a) {
  const auto steps = [](int degree) { return std::bit_width(unsigned(degree)) - 1; };
  const int row = a.strategy == "ddp" ? 0 : a.strategy == "zero1" ? 1 : 2;
  return row + 4 * steps(a.shards) + 64 * int(a.recompute) + 128 * int(a.offload) +
         256 * steps(a.tensor) + 4096 * steps(a.pipeline) + 65536 * steps(a.context);
}

/// Ranks that are a host's number of ranks or more apart are on different hosts, each alone on its
/// own; nearer ones share a host by as many as fit.
GroupPlace place_of(const PlanRequest& request, const Arrangement& a, GroupAxis axis) {
  const int per_host = request.machine.network.ranks;
  const int stride = stride_of(request, a, axis), ranks = degree_of(request, a, axis);
  const int together = std::clamp(per_host / stride, 1, ranks);
  return {.ranks = ranks,
          .per_host = together,
          .hosts = (ranks + together - 1) / together,
          .groups_per_host = std::max(1, per_host / together)};
}

}  // namespace sprat::planning
