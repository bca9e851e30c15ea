// Lines of tables, and keys of two configurations.
#include "planning/report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "comm/base/check.hpp"
#include "planning/advice.hpp"

namespace sprat::planning {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::size_t most_told = 20;

/// Everything that the figures below it rest on, assumptions by that word.
std::string request_text(const PlanRequest& request) {
  const Device& device = request.machine.device;
  const bool measured = request.machine.measured.flops > 0;
  std::string text = fmt::format(
      "{}: {}\n{} x {} ({}), {} ranks with {:.3g} GiB each\n"
      "a step: {} sequences of {} tokens, {:.3g} M tokens; {}, gradients travel as {}\n"
      "a device multiplies at {:.3g} TFLOP/s, {}; wires carry {:.0f} % of their peak\n",
      request.model.name, describe(request.model), request.hosts, request.machine.network.name,
      request.machine.network.summary, request.ranks(), request.machine.usable_bytes() / GiB,
      request.batch_sequences, request.sequence,
      static_cast<double>(request.batch_sequences * request.sequence) / 1e6,
      name(request.precision), name(request.wire), request.machine.flops(request.precision) / 1e12,
      measured ? "measured"
               : fmt::format("{:.0f} % of its peak (assumed; --calibration FILE says better)",
                             100 * TrainingMachine::product_share),
      100 * TrainingMachine::wire_share);
  if (!request.model.assumed.empty()) {
    text += fmt::format("assumed of {}: {}\n", request.model.name, request.model.assumed);
  }
  if (device.reserved_GiB > 0 && request.machine.measured.memory_GiB == 0) {
    text += fmt::format("assumed: {} of {} GiB are the driver's and the libraries'\n",
                        device.reserved_GiB, device.memory_GiB);
  }
  return text;
}

std::string degrees_text(const PlanRequest& request, const Plan& plan) {
  const Arrangement& a = plan.arrangement;
  std::string text = fmt::format("\n{}\n", describe(request, a));
  const auto line = [&](const char* what, const std::string& value) {
    text += fmt::format("  {:<44} {}\n", what, value);
  };
  // In the order in which SMP's documents advise them.
  line("strategy, hybrid_shard_degree", fmt::format("{}, {}", a.strategy, a.shards));
  line("activation_checkpointing", a.recompute ? "each" : "none");
  line("offload_activations", a.offload ? "true" : "false");
  line("tensor_parallel_degree", std::to_string(a.tensor));
  line("pipeline_parallel_degree, microbatches",
       fmt::format("{}, {} of {} sequences", a.pipeline, a.microbatches,
                   microbatch_sequences(request, a)));
  line("context_parallel_degree", std::to_string(a.context));
  line("replicas", std::to_string(replicas(request, a)));
  if (request.gradient_order == GradientOrder::tree) {
    line("gradient_order",
         fmt::format("tree: the same bits on any ranks with {} micro-batches of {} together{}",
                     data_ranks(request, a) * a.microbatches, microbatch_sequences(request, a),
                     a.tensor > 1 ? ", by train.gemm reference" : ""));
  }
  return text;
}

/// Parts that are nothing are left out: a plan without stages has no messages.
std::string memory_text(const PlanRequest& request, const DeviceMemory& memory) {
  std::string text =
      fmt::format("\nmemory of the device that holds most: {} of {}\n", gibibytes(memory.total()),
                  gibibytes(request.machine.usable_bytes()));
  for (const MemoryPart& part : memory_parts()) {
    if (memory.*part.bytes > 0) {
      text += fmt::format("  {:<24} {:>12}\n", part.name, gibibytes(memory.*part.bytes));
    }
  }
  if (memory.offloaded > 0) {
    text += fmt::format("  and in the host's memory {:>12}\n", gibibytes(memory.offloaded));
  }
  return text;
}

/// In seconds and shares: the first tell what a change saves, the second which to make.
std::string time_text(const PlanRequest& request, const StepTime& time) {
  const double total = time.total();
  std::string text =
      fmt::format("\na step: {:.4g} s; {:.4g} tokens/s; model flops utilisation {:.1f} %\n", total,
                  tokens_per_second(request, total), 100 * utilisation(request, total));
  for (const TimePart& part : time_parts()) {
    if (time.*part.seconds > 0) {
      text += fmt::format("  {:<24} {:>10.4g} s {:>6.1f} %\n", part.name, time.*part.seconds,
                          100 * time.*part.seconds / total);
    }
  }
  return text;
}

/// Others within the tolerance: the model is not better than that, so people choose among them.
std::string others_text(const PlanRequest& request, const SearchResult& result) {
  std::string text =
      fmt::format("\n{} arrangements, {} computed in full; within {:.0f} %: {}\n",
                  result.arrangements, result.simulated, 100 * told_share, result.plans.size());
  // Each beside the best one's time, which is what somebody who prefers another plan pays.
  const double best = result.plans.front().time.total();
  for (std::size_t at = 1; at < std::min(result.plans.size(), most_told + 1); ++at) {
    const Plan& plan = result.plans[at];
    text += fmt::format("  +{:4.1f} %  {:>10}  {}{}\n", 100 * (plan.time.total() / best - 1),
                        gibibytes(plan.memory.total()), describe(request, plan.arrangement),
                        at == 1 ? "   (next best)" : "");
  }
  if (result.plans.size() > most_told + 1) {
    text += fmt::format("  and {} more\n", result.plans.size() - most_told - 1);
  }
  return text;
}

/// The plan that holds least says by its parts what to change.
std::string nothing_fits(const PlanRequest& request, const SearchResult& result) {
  return "\nnothing fits. What holds least:\n" + degrees_text(request, *result.smallest) +
         memory_text(request, result.smallest->memory) +
         "more --hosts share the states, a smaller --batch-tokens the activations\n";
}

/// The number that `sprat train` takes: those that shard over all have no other.
int shard_key(const Arrangement& a) { return a.strategy.starts_with("zero") ? 0 : a.shards; }

/// Shapes that `sprat train` cannot have are refused here, not by the run hours later.
void check_trainer_shape(const ModelShape& model) {
  require(!model.gated && model.kv_heads() == model.heads && model.experts == 1 &&
              model.inner_width() == 4 * model.width && model.tied &&
              model.attention_width() == model.width,
          "the trainer's GPT has an MLP of 4 x width without a gate, as many heads of keys as of "
          "queries, one expert and a tied head, and ",
          model.name, " is ", describe(model), "; write --smp FILE for sprat.torch instead");
}

}  // namespace

std::string gibibytes(double bytes) {
  return bytes < GiB ? fmt::format("{:.1f} MiB", bytes / GiB * 1024)
                     : fmt::format("{:.2f} GiB", bytes / GiB);
}

std::string plan_text(const PlanRequest& request, const SearchResult& result) {
  if (result.plans.empty()) {
    return request_text(request) + nothing_fits(request, result);
  }
  const Plan& best = result.plans.front();
  std::string text = request_text(request) + degrees_text(request, best) +
                     memory_text(request, best.memory) + time_text(request, best.time) +
                     others_text(request, result);
  const std::vector<Advice> advice = advice_on(request, best);
  text += advice.empty() ? "" : "\n";
  for (const Advice& one : advice) {
    text += fmt::format("advice ({}): {}\n", one.rule, one.text);
  }
  return text;
}

std::string train_json(const PlanRequest& request, const Plan& plan, const std::string& data) {
  check_trainer_shape(request.model);
  const Arrangement& a = plan.arrangement;
  // Sections and keys in the order of docs/training.md; what is not planned has its default.
  OrderedJson json;
  json["model"] = {{"layers", request.model.layers},
                   {"width", request.model.width},
                   {"heads", request.model.heads},
                   {"context", request.sequence},
                   {"vocabulary", request.model.vocabulary}};
  json["data"] = {{"files", {data}}};
  json["train"] = {{"steps", 1000}, {"batch", request.batch_sequences}};
  json["train"]["precision"] = {{"parameters", name(request.precision)},
                                {"gradient_wire", name(request.wire)}};
  json["parallel"] = {{"strategy", a.strategy},
                      {"hybrid_shard_degree", shard_key(a)},
                      {"prefetch_units", request.prefetch_units},
                      {"tensor_parallel_degree", a.tensor},
                      {"prescaled_batch", true},
                      {"optimize", "memory"},
                      {"pipeline_parallel_degree", a.pipeline},
                      {"microbatches", a.microbatches},
                      {"context_parallel_degree", a.context},
                      {"placement_strategy", a.placement},
                      {"activation_checkpointing", a.recompute ? "each" : "none"}};
  if (request.gradient_order != GradientOrder::sequence) {
    json["parallel"]["gradient_order"] = name(request.gradient_order);
  }
  // A key of offloading without offload is refused, so it is left out.
  if (a.offload) {
    json["parallel"]["offload_activations"] = true;
  }
  return fmt::format("// Planned for {} x {}: {}.\n// {} a rank, {:.4g} s a step.\n{}\n",
                     request.hosts, request.machine.network.name, describe(request, a),
                     gibibytes(plan.memory.total()), plan.time.total(), json.dump(2));
}

std::string smp_json(const PlanRequest& request, const Plan& plan) {
  const Arrangement& a = plan.arrangement;
  const std::string reason = smp_refusal(a);
  require(reason.empty(), describe(request, a), ": ", reason);
  require(request.gradient_order == GradientOrder::sequence,
          "SMP has no key for gradient_order; write --json FILE for sprat train instead");
  OrderedJson json;
  // Version 2 knows sharded parameters, version 1 stages and sharded optimizer state.
  if (a.pipeline == 1 && a.strategy != "zero1") {
    json["hybrid_shard_degree"] = a.shards;
    json["tensor_parallel_degree"] = a.tensor;
    json["sm_activation_offloading"] = a.offload;
    return json.dump(2) + "\n";
  }
  json["pipeline_parallel_degree"] = a.pipeline;
  json["microbatches"] = a.microbatches;
  json["tensor_parallel_degree"] = a.tensor;
  json["ddp"] = true;
  json["prescaled_batch"] = true;
  json["optimize"] = "memory";
  json["placement_strategy"] = a.placement;
  json["shard_optimizer_state"] = a.strategy == "zero1";
  json["offload_activations"] = a.offload;
  return json.dump(2) + "\n";
}

}  // namespace sprat::planning
