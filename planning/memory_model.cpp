// The sums that the planners of fsdp and mp make of one rank.
#include "planning/memory_model.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "memory/arena.hpp"
#include "mp/activations.hpp"
#include "mp/tensor/row_plan.hpp"

namespace sprat::planning {
namespace {

constexpr int adamw_states = 2;

double bytes_of(std::size_t count) { return static_cast<double>(count); }

/// What stays of a layer until its backward, for the tokens of a micro-batch.
double tape_bytes(const LayerCost& layer, const Arrangement& a, double tokens) {
  return tokens * (a.recompute && layer.is_block ? layer.input_bytes : layer.tape_bytes);
}

/// What tensor ranks exchange rows through: all rows of a micro-batch, whole for the while of a
/// product, and the chunks of them that are on their way.
double exchange_bytes(const PlanRequest& request, const Arrangement& a) {
  if (a.tensor == 1) {
    return 0;
  }
  const auto rows = static_cast<int>(
      std::min<std::int64_t>(microbatch_tokens(request, a), std::numeric_limits<int>::max() / 2));
  const auto width = static_cast<int>(request.model.width);
  const tensor::Parallelism how{.degree = a.tensor, .sequence_parallel = true};
  const std::size_t elements =
      tensor::most_slots_count(how, rows, width) + tensor::row_elements(rows, width);
  return bytes_of(elements) * bytes_of(size_of(request.precision));
}

/// Tapes of one rank by mp's planner of activations.
void add_activations(Rehearsals& rehearsals, const Arrangement& a, int rank, DeviceMemory& memory) {
  const auto tokens = static_cast<double>(microbatch_tokens(rehearsals.request(), a));
  const std::vector<LayerCost>& layers = rehearsals.layers(a.tensor);
  std::vector<mp::StageLayers> stages;
  double working = 0;
  for (const StageRange& range : rehearsals.stages(a.pipeline)) {
    mp::StageLayers stage{.first = range.first, .tape_bytes = {}};
    for (int at = range.first; at < range.end; ++at) {
      const LayerCost& layer = layers[static_cast<std::size_t>(at)];
      stage.tape_bytes.push_back(static_cast<std::size_t>(tape_bytes(layer, a, tokens)));
      // A checkpoint's block is whole for the while of its backward, one block at a time.
      const bool anew = a.recompute && layer.is_block;
      const bool mine = stages.size() == static_cast<std::size_t>(rank);
      const double needed =
          tokens * (layer.working_bytes + (anew ? layer.tape_bytes - layer.input_bytes : 0));
      working = mine ? std::max(working, needed) : working;
    }
    stages.push_back(std::move(stage));
  }
  const int shown = rehearsed_microbatches(rehearsals.request(), a);
  const mp::Schedule& schedule = rehearsals.schedule(a.pipeline, shown);
  const ActivationProgram program = mp::activation_program(schedule, rank, stages);
  // Without a tier every storage is too small to leave, as in ActivationMemory.
  OffloadOptions offload;
  offload.min_bytes = a.offload ? 0 : std::numeric_limits<std::size_t>::max();
  const mp::ActivationPlan plan = mp::plan_activations(program, offload);
  memory.activations = bytes_of(memory::plan_slots(mp::activation_buffers(program, plan)).total());
  memory.working = working + exchange_bytes(rehearsals.request(), a);
  // A tier keeps a tape until its backward, so as many micro-batches as the schedule has under way.
  const double held = mp::most_microbatches_held(schedule, rank);
  memory.offloaded = a.offload ? bytes_of(plan.offloaded_bytes) * held / shown : 0;
}

/// Full gradients of all units, once.
double gradient_bytes(const fsdp::Visits& order) {
  double bytes = 0;
  for (const std::size_t elements : order.elements) {
    bytes += bytes_of(elements * sizeof(float));
  }
  return bytes;
}

/// A binary counter has a digit for each doubling: while the second half of the micro-batches is
/// added up, each unit's sum of the first half waits.
double unshown_sums(const PlanRequest& request, const Arrangement& a, int shown) {
  return request.gradient_order == GradientOrder::tree
             ? std::log2(static_cast<double>(a.microbatches) / shown)
             : 0;
}

}  // namespace

const std::vector<MemoryPart>& memory_parts() {
  static const std::vector<MemoryPart> parts = {
      {"parameters", &DeviceMemory::parameters},
      {"gradients", &DeviceMemory::gradients},
      {"optimizer state", &DeviceMemory::optimizer},
      {"gathered parameters", &DeviceMemory::gathered},
      {"gradient buffers", &DeviceMemory::gradient_buffers},
      {"activations", &DeviceMemory::activations},
      {"working", &DeviceMemory::working},
      {"messages", &DeviceMemory::messages},
  };
  return parts;
}

DeviceMemory memory_of_rank(Rehearsals& rehearsals, const Arrangement& a, int rank) {
  const PlanRequest& request = rehearsals.request();
  const int microbatches = rehearsed_microbatches(request, a);
  const StageRange stage = rehearsals.stages(a.pipeline)[static_cast<std::size_t>(rank)];
  const std::vector<mp::Action> actions =
      mp::computations_of(rehearsals.schedule(a.pipeline, microbatches), rank);
  const fsdp::Visits order = units_of(rehearsals, a, stage, actions);
  const fsdp::Sharding sharding = sharding_of(request, a);
  const std::vector<fsdp::Sharding> shardings(order.units.size(), sharding);
  const FsdpOptions options = options_of(request, a, microbatches);
  // Of the whole order, as the engine has it, with the defaults filled in.
  const fsdp::SlotPlans slots =
      fsdp::plan_memory(fsdp::GatherSchedule(order).declared(), shardings, options, adamw_states);
  // The plan has one sum of what is kept; people want it by part.
  DeviceMemory memory;
  for (std::size_t unit = 0; unit < order.units.size(); ++unit) {
    const fsdp::KeptBytes kept =
        fsdp::kept_bytes(sharding, order.elements[unit], request.precision, adamw_states);
    const bool tied = order.values_of[unit] != static_cast<int>(unit);
    memory.gradients += bytes_of(kept.gradients);
    memory.parameters += tied ? 0 : bytes_of(kept.parameters);
    memory.optimizer += tied ? 0 : bytes_of(kept.optimizer);
  }
  memory.gathered = bytes_of(slots.memory.parameter_slots);
  memory.gradient_buffers = bytes_of(slots.memory.gradient_slots) +
                            unshown_sums(request, a, microbatches) * gradient_bytes(order);
  add_activations(rehearsals, a, rank, memory);
  const auto tokens = static_cast<double>(microbatch_tokens(request, a));
  // Slots were counted in outputs, which are rows of the stream, dealt to tensor ranks.
  const double output = tokens * bytes_of(size_of(request.precision)) *
                        static_cast<double>(request.model.width) / a.tensor;
  memory.messages = output * rehearsals.message_slots(a.pipeline, microbatches)[std::size_t(rank)];
  return memory;
}

/// Stages differ: the first ranks hold most tapes, the last has the logits. So all are asked. What
/// lies in the host's memory is most on another rank than what lies in the device's, perhaps.
DeviceMemory memory_of(Rehearsals& rehearsals, const Arrangement& arrangement, double enough) {
  DeviceMemory most;
  for (int rank = 0; rank < arrangement.pipeline && most.total() <= enough; ++rank) {
    const DeviceMemory one = memory_of_rank(rehearsals, arrangement, rank);
    const double offloaded = std::max(one.offloaded, most.offloaded);
    most = one.total() > most.total() ? one : most;
    most.offloaded = offloaded;
  }
  return most;
}

double least_memory(Rehearsals& rehearsals, const Arrangement& a) {
  const PlanRequest& request = rehearsals.request();
  const fsdp::Sharding sharding = sharding_of(request, a);
  const std::vector<LayerCost>& layers = rehearsals.layers(a.tensor);
  const auto tokens = static_cast<double>(microbatch_tokens(request, a));
  double most = 0;
  for (const StageRange& stage : rehearsals.stages(a.pipeline)) {
    double bytes = 0, tapes = 0;
    for (int at = stage.first; at < stage.end; ++at) {
      const LayerCost& layer = layers[static_cast<std::size_t>(at)];
      const bool tied = request.model.tied && at > 0 && stage.first == 0 &&
                        at + 1 == static_cast<int>(layers.size());
      // Padding only adds to these.
      const fsdp::KeptBytes kept = fsdp::kept_bytes(
          sharding, static_cast<std::size_t>(layer.parameters), request.precision, adamw_states);
      bytes += bytes_of(tied ? kept.gradients : kept.total());
      tapes += tape_bytes(layer, a, tokens);
    }
    most = std::max(most, bytes + (a.offload ? 0 : tapes));
  }
  return most;
}

/// Both limits are hard: a device beyond its memory fails, a host beyond its own swaps or kills.
bool fits(const PlanRequest& request, const DeviceMemory& memory) {
  const TrainingMachine& machine = request.machine;
  // Half of the host's memory is for what is not ours: the page cache, loaders, the system.
  const double of_host = machine.device.host_memory_GiB * GiB / 2 / machine.network.ranks;
  return memory.total() <= machine.usable_bytes() && memory.offloaded <= of_host;
}

}  // namespace sprat::planning
