// The table of rules. Numbers that the documents give are theirs; where they say "small" or "idle"
// the bound is ours, and named.
#include "planning/advice.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>

namespace sprat::planning {
namespace {

constexpr double worth_telling = 0.05;  // of a step, or of memory
constexpr double much_bubble = 0.2;     // what a pipeline of 2 with 4 micro-batches has
constexpr double idle_memory = 0.3, tight_memory = 0.9;
constexpr std::int64_t few_tokens = 1024;  // rows below which products do not fill a GPU
// The documents name p3dn, whose devices have 32 GiB, as the least, and hosts of 8 devices.
constexpr double large_device_GiB = 32;
constexpr int full_host = 8;

/// Not a core of a host without GPUs, about which the documents say nothing.
bool has_gpus(const PlanRequest& request) { return request.machine.device.narrow_TFLOPS >= 1; }

/// Of what a device can give, how much the plan takes.
double used(const PlanRequest& request, const Plan& plan) {
  return plan.memory.total() / request.machine.usable_bytes();
}

double share(const Plan& plan, double seconds) {
  return plan.time.total() > 0 ? seconds / plan.time.total() : 0;
}

bool shards_optimizer(const Plan& plan) { return plan.arrangement.strategy != "ddp"; }

/// Sharded states cost little where gathers hide; stages cost a bubble, so they come last.
std::string order_of_techniques(const PlanRequest& request, const Plan& plan) {
  const Arrangement& a = plan.arrangement;
  if (a.pipeline > 1 && a.tensor * 2 <= request.machine.network.ranks &&
      request.model.kv_heads() % (2 * a.tensor) == 0 && !shards_optimizer(plan)) {
    return fmt::format(
        "the model is cut into {} stages while optimizer state is whole on each rank: shard it "
        "first (strategy zero1 or hybrid_shard_degree), then cut layers (T {}), then stages",
        a.pipeline, 2 * a.tensor);
  }
  return a.offload && !a.recompute
             ? "activations are offloaded and not checkpointed: checkpoint them first"
             : "";
}

struct Lessened {
  Arrangement arrangement;
  const char* technique;
};

/// The same arrangement with one technique less, the cheapest to leave out first.
std::vector<Lessened> with_one_less(const PlanRequest& request, const Arrangement& from) {
  std::vector<Lessened> all;
  const auto add = [&](const char* technique, bool has, auto change) {
    if (has) {
      Arrangement less = from;
      change(less);
      if (less.strategy != "ddp" && less.strategy != "hsdp" && less.strategy != "hfsdp") {
        less.shards = data_ranks(request, less);  // rows that shard over all of them
      }
      all.push_back({.arrangement = std::move(less), .technique = technique});
    }
  };
  add("offloading", from.offload, [](Arrangement& less) { less.offload = false; });
  add("checkpointing", from.recompute,
      [](Arrangement& less) { less.recompute = less.offload = false; });
  add("stages", from.pipeline > 1, [](Arrangement& less) { less.pipeline = 1; });
  add("tensor ranks", from.tensor > 1, [](Arrangement& less) { less.tensor = 1; });
  return all;
}

/// The search leaves nothing out, so this speaks to those who pinned what a model does not need.
/// Memory is asked first, for it costs a thousandth of a step's simulation.
std::string less_technique(const PlanRequest& request, const Plan& plan) {
  for (const Lessened& one : with_one_less(request, plan.arrangement)) {
    if (!refusal(request, one.arrangement).empty()) {
      continue;
    }
    Rehearsals rehearsals(request);
    if (!fits(request, memory_of(rehearsals, one.arrangement))) {
      continue;
    }
    GroupCost groups(request.machine);
    // Its bound alone rules most out where the search chose the plan.
    if (least_time(rehearsals, groups, one.arrangement) > plan.time.total()) {
      continue;
    }
    const double seconds = time_of(rehearsals, groups, one.arrangement).total();
    if (seconds <= plan.time.total()) {
      return fmt::format("it fits without {} too, and a step takes no longer, {:.3g} s: {}",
                         one.technique, seconds, describe(request, one.arrangement));
    }
  }
  return {};
}

/// Half of the degree gathers over half as many ranks, perhaps inside of a host; so it is tried.
std::string smallest_shard_degree(const PlanRequest& request, const Plan& plan) {
  Arrangement less = plan.arrangement;
  if (less.strategy != "hsdp" && less.strategy != "zero3") {
    return {};
  }
  less.strategy = "hsdp";
  less.shards /= 2;
  if (less.shards < 2 || less.shards % less.context != 0 || !refusal(request, less).empty()) {
    return {};
  }
  Rehearsals rehearsals(request);
  const DeviceMemory memory = memory_of(rehearsals, less);
  return fits(request, memory)
             ? fmt::format(
                   "hybrid_shard_degree {} fits too, in {:.1f} GiB: the smallest that fits "
                   "gathers among fewer ranks",
                   less.shards, memory.total() / GiB)
             : "";
}

/// What tensor ranks exchange nothing hides, so it has to stay on a host's fastest links.
std::string tensor_degree(const PlanRequest& request, const Plan& plan) {
  const int tensor = plan.arrangement.tensor, host = request.machine.network.ranks;
  if (tensor > host) {
    return fmt::format("tensor_parallel_degree {} leaves the host, which has {} devices: take {}",
                       tensor, host, host);
  }
  return std::has_single_bit(unsigned(tensor))
             ? ""
             : fmt::format("tensor_parallel_degree {} is no power of two: take {}", tensor,
                           std::bit_floor(unsigned(tensor)));
}

/// Stages exchange one output a micro-batch, the least of all axes, so theirs may be the slow wire.
std::string pipeline_across_hosts(const PlanRequest& request, const Plan& plan) {
  const Arrangement& a = plan.arrangement;
  const bool inside = a.pipeline > 1 && a.placement == "DPT" &&
                      a.tensor < request.machine.network.ranks &&
                      a.tensor * a.pipeline <= request.machine.network.ranks;
  return inside && request.hosts > 1
             ? fmt::format(
                   "T {} x P {} fit into one host: stages send little, so let them be on "
                   "different hosts (placement PDT) and keep a host's links for T and S",
                   a.tensor, a.pipeline)
             : "";
}

/// A bubble is (P - 1) / (m + P - 1) of a step, so twice the micro-batches nearly halve it.
std::string microbatches(const PlanRequest&, const Plan& plan) {
  const Arrangement& a = plan.arrangement;
  const double bubble = share(plan, plan.time.bubble);
  if (a.pipeline == 1 || bubble <= much_bubble) {
    return {};
  }
  return fmt::format("{} micro-batches leave a bubble of {:.0f} %: take {}, if the batch divides",
                     a.microbatches, 100 * bubble, 2 * a.microbatches);
}

/// More under way hide what messages take, for the memory of their tapes.
std::string active_microbatches(const PlanRequest& request, const Plan& plan) {
  const Arrangement& a = plan.arrangement;
  const bool waits = share(plan, plan.time.messages + plan.time.bubble) > worth_telling;
  return a.pipeline > 1 && a.microbatches > a.pipeline + 2 && waits &&
                 used(request, plan) < 1 - idle_memory
             ? fmt::format(
                   "{:.0f} % of memory and {:.0f} % of the time are idle: raise "
                   "active_microbatches above {}",
                   100 * (1 - used(request, plan)),
                   100 * share(plan, plan.time.messages + plan.time.bubble), a.pipeline + 2)
             : "";
}

/// Else each tensor rank reads samples of its own, and a stage's micro-batches are T times as
/// large.
std::string prescaled_batch(const PlanRequest&, const Plan& plan) {
  return plan.arrangement.tensor > 1 && plan.arrangement.pipeline > 1
             ? "with tensor and pipeline ranks give prescaled_batch true, as the written "
               "configurations do: the ranks of a tensor group read the same samples"
             : "";
}

/// The search tries no such arrangement; people who pin degrees may.
std::string offload_with_checkpointing(const PlanRequest&, const Plan& plan) {
  const Arrangement& a = plan.arrangement;
  if (a.offload && !a.recompute) {
    return "offload_activations has no effect without activation checkpointing: switch that on";
  }
  return a.offload && a.pipeline > 1 && a.microbatches == 1
             ? "with one micro-batch its tapes come back at once: offloading saves nothing"
             : "";
}

/// Sharded states grow as a cluster shrinks.
std::string downsizing(const PlanRequest& request, const Plan& plan) {
  if (!shards_optimizer(plan) || request.hosts < 2 || request.hosts % 2 != 0) {
    return {};
  }
  // The same arrangement on half of the hosts, by the same planner of memory.
  PlanRequest half = request;
  half.hosts /= 2;
  Arrangement fewer = plan.arrangement;
  fewer.shards = std::min(fewer.shards, data_ranks(half, fewer));
  // The same micro-batches, twice as many of them.
  fewer.microbatches *= 2;
  if (data_ranks(half, fewer) < 1 || fewer.shards < 2 || !refusal(half, fewer).empty()) {
    return {};
  }
  Rehearsals rehearsals(half);
  const DeviceMemory memory = memory_of(rehearsals, fewer);
  return fits(half, memory)
             ? ""
             : fmt::format(
                   "optimizer state is sharded over all data ranks: on {} hosts a device "
                   "would need {:.1f} GiB and not fit",
                   half.hosts, memory.total() / GiB);
}

/// A rule about learning, which no planner knows: it is said wherever a batch has grown by ranks.
std::string linear_scaling(const PlanRequest& request, const Plan& plan) {
  const int data = data_ranks(request, plan.arrangement) / plan.arrangement.context;
  return data > 1 ? fmt::format(
                        "a step has {} times the samples of one rank: scale the learning "
                        "rate with the batch (train.base_batch) and warm up "
                        "(train.warmup_steps)",
                        data)
                  : "";
}

/// Products of few rows read their weights for little work.
std::string batch_per_device(const PlanRequest& request, const Plan& plan) {
  const std::int64_t tokens = microbatch_tokens(request, plan.arrangement);
  return tokens < few_tokens
             ? fmt::format(
                   "a device computes {} tokens at once, too few to fill it: give a larger "
                   "--batch-tokens, or fewer hosts",
                   tokens)
             : "";
}

/// A transformer has none, but people plan others by its numbers.
std::string batch_normalisation(const PlanRequest& request, const Plan& plan) {
  const std::int64_t samples = microbatch_sequences(request, plan.arrangement);
  constexpr std::int64_t few_samples = 8;
  return samples < few_samples && data_ranks(request, plan.arrangement) > 1
             ? fmt::format(
                   "a device has {} samples at a time: a model with batch normalisation "
                   "needs a synchronised one",
                   samples)
             : "";
}

/// Half or a quarter of the bytes, where bytes are what a step waits for.
std::string narrow_gradients(const PlanRequest& request, const Plan& plan) {
  const double exposed = share(plan, plan.time.gradients + plan.time.parameters);
  if (exposed <= worth_telling || size_of(request.wire) == 1) {
    return {};
  }
  return fmt::format("{:.0f} % of a step waits for gradients and parameters: send gradients as {}",
                     100 * exposed, request.wire == DType::f32 ? "bf16" : "i8");
}

/// Groups keep one input for several blocks, and compute all of them anew for the last one.
std::string group_checkpoints(const PlanRequest& request, const Plan& plan) {
  const Arrangement& a = plan.arrangement;
  return a.recompute && request.model.layers >= 2 * a.pipeline && used(request, plan) > tight_memory
             ? fmt::format(
                   "memory is {:.0f} % full with an input kept for each block: "
                   "activation_checkpointing group_2 keeps half of them",
                   100 * used(request, plan))
             : "";
}

/// Fewer samples at a time cost little; a larger tensor degree sends more in every layer.
std::string smaller_batch_first(const PlanRequest& request, const Plan& plan) {
  const double activations = plan.memory.activations + plan.memory.working;
  const std::int64_t samples = microbatch_sequences(request, plan.arrangement);
  return used(request, plan) > tight_memory && samples > 1 &&
                 activations > worth_telling * plan.memory.total()
             ? fmt::format(
                   "memory is {:.0f} % full, {:.1f} GiB of it by {} samples at a time: lower "
                   "the batch first, or take {} micro-batches, and only then a larger tensor "
                   "degree than {}",
                   100 * used(request, plan), activations / GiB, samples,
                   2 * plan.arrangement.microbatches, plan.arrangement.tensor)
             : "";
}

/// Cut models have overheads on every device, which small ones feel most.
std::string large_devices(const PlanRequest& request, const Plan& plan) {
  const double memory = request.machine.device.memory_GiB;
  return plan.arrangement.tensor * plan.arrangement.pipeline > 1 && has_gpus(request) &&
                 memory < large_device_GiB
             ? fmt::format(
                   "the model is cut over devices of {:.0f} GiB: p4d has 40, p4de and p5 80, and "
                   "EFA between hosts",
                   memory)
             : "";
}

/// Links of a host are faster than any wire between hosts.
std::string larger_hosts_first(const PlanRequest& request, const Plan&) {
  const int devices = request.machine.network.ranks;
  return request.hosts > 1 && has_gpus(request) && devices < full_host
             ? fmt::format(
                   "{} hosts have {} devices each: take hosts of {} before you take several",
                   request.hosts, devices, full_host)
             : "";
}

/// Half of the bytes, and products that tensor cores make.
std::string half_precision(const PlanRequest& request, const Plan&) {
  const Device& device = request.machine.device;
  return request.precision == DType::f32 && device.narrow_TFLOPS > device.wide_TFLOPS
             ? fmt::format(
                   "products of 16 bits are {:.1f} times as fast as those of f32 here: take "
                   "--precision bf16",
                   device.narrow_TFLOPS / device.wide_TFLOPS)
             : "";
}

/// Activations go with tokens at a time, states do not.
std::string shorter_sequences(const PlanRequest& request, const Plan& plan) {
  const double activations = plan.memory.activations + plan.memory.working;
  return used(request, plan) > tight_memory && activations > plan.memory.total() / 2
             ? fmt::format(
                   "activations take {:.1f} of {:.1f} GiB: a sequence shorter than {} "
                   "leaves room, or context_parallel_degree cuts it",
                   activations / GiB, plan.memory.total() / GiB, request.sequence)
             : "";
}

/// On hosts without GPUs decoding and reductions want the same cores.
std::string preprocessing(const PlanRequest& request, const Plan& plan) {
  if (share(plan, plan.time.loader) > worth_telling) {
    return fmt::format(
        "reading takes {:.0f} % of a step: prepare data beforehand, or see sprat "
        "plan storage",
        100 * share(plan, plan.time.loader));
  }
  return request.machine.device.narrow_TFLOPS < 1 && request.hosts > 1
             ? "reductions are made by the cores that prepare data: prepare it beforehand, or "
               "leave cores to reductions (docs/data.md)"
             : "";
}

constexpr std::array rules = {
    AdviceRule{"order_of_techniques", "shard states, checkpoint, offload, cut layers, cut stages",
               order_of_techniques},
    AdviceRule{"less_technique", "where a model fits by some techniques, more do not help",
               less_technique},
    AdviceRule{"large_devices", "take devices with much memory, on hosts with EFA", large_devices},
    AdviceRule{"larger_hosts_first", "take a larger host before several", larger_hosts_first},
    AdviceRule{"smallest_shard_degree", "take the smallest shard degree that fits",
               smallest_shard_degree},
    AdviceRule{"tensor_degree", "tensor degrees are powers of two, at most the devices of a host",
               tensor_degree},
    AdviceRule{"pipeline_across_hosts", "pipelines go across hosts, tensor ranks inside of one",
               pipeline_across_hosts},
    AdviceRule{"microbatches", "begin with 2 or 4 micro-batches, more for a smaller bubble",
               microbatches},
    AdviceRule{"active_microbatches", "raise active_microbatches if devices and memory are idle",
               active_microbatches},
    AdviceRule{"prescaled_batch", "prescaled_batch with tensor and pipeline parallelism",
               prescaled_batch},
    AdviceRule{"offload_with_checkpointing",
               "offload together with checkpointing, and several "
               "micro-batches",
               offload_with_checkpointing},
    AdviceRule{"group_checkpoints", "checkpoint several modules together where memory is short",
               group_checkpoints},
    AdviceRule{"smaller_batch_first", "lower the batch before the tensor degree is raised",
               smaller_batch_first},
    AdviceRule{"downsizing", "what fits with sharded optimizer state may not on fewer hosts",
               downsizing},
    AdviceRule{"linear_scaling", "scale the learning rate with the batch, and warm up",
               linear_scaling},
    AdviceRule{"batch_per_device", "fill the device: raise the batch of each", batch_per_device},
    AdviceRule{"batch_normalisation", "small batches of a device are bad for batch normalisation",
               batch_normalisation},
    AdviceRule{"narrow_gradients", "reduce gradients in 16 bits or fewer", narrow_gradients},
    AdviceRule{"half_precision", "train in mixed precision", half_precision},
    AdviceRule{"shorter_sequences", "shorter sequences where activations fill the memory",
               shorter_sequences},
    AdviceRule{"preprocessing", "keep preprocessing away from the cores that reduce",
               preprocessing},
};

}  // namespace

std::span<const AdviceRule> advice_rules() { return rules; }

std::vector<Advice> advice_on(const PlanRequest& request, const Plan& plan) {
  std::vector<Advice> all;
  for (const AdviceRule& rule : rules) {
    if (std::string text = rule.judge(request, plan); !text.empty()) {
      all.push_back({.rule = rule.name, .text = std::move(text)});
    }
  }
  return all;
}

}  // namespace sprat::planning
