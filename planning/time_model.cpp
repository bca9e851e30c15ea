// Layers become stages of a simulated pass, passes stages of a simulated pipeline.
#include "planning/time_model.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "mp/activations.hpp"
#include "mp/simulate.hpp"
#include "sprat/pipeline.hpp"

namespace sprat::planning {
namespace {

using collectives::Collective;

/// A gradient, two moments and a master are read, three of them and the parameter written.
constexpr double update_bytes = 4 * sizeof(float) + 3 * sizeof(float) + 2;
constexpr double token_bytes = 4;
/// A sum is read and written, what is added to it read.
constexpr double addition_bytes = 3 * sizeof(float);

/// One layer's pass of one micro-batch, and its unit's collectives.
struct LayerTime {
  double forward = 0, recompute = 0;               ///< Computing; a backward is two forwards.
  double tensor_forward = 0, tensor_backward = 0;  ///< Without the recomputation's.
  double context_forward = 0, context_backward = 0;
  double gather = 0, reduce = 0;  ///< In each micro-batch,
  double last_reduce = 0;         ///< and in the last one.
  double addition = 0;            ///< To the sum of other micro-batches.
};

/// What a stage takes for one micro-batch.
struct StageTime {
  double compute = 0, recompute = 0, tensor = 0, context = 0, additions = 0;
  double forward = 0, backward = 0;  ///< All of it, with what its collectives expose.
  double last_more = 0;              ///< What the last micro-batch takes beyond that.

  /// Sums of many numbers differ by rounding; what is not a part in 10^9 of a pass is that.
  double exposed() const {
    const double all = forward + backward;
    const double more = all - compute - recompute - tensor - context - additions;
    return more > 1e-9 * all ? more : 0;
  }
};

class StepModel {
 public:
  StepModel(Rehearsals& rehearsals, GroupCost& groups, const Arrangement& arrangement)
      : rehearsals_(rehearsals),
        request_(rehearsals.request()),
        groups_(groups),
        a_(arrangement),
        tokens_(static_cast<double>(microbatch_tokens(request_, arrangement))),
        element_(static_cast<double>(size_of(request_.precision))),
        stream_bytes_(tokens_ * element_ * static_cast<double>(request_.model.width)) {}

  double least();
  StepTime all();
  std::string trace();

 private:
  std::vector<StageTime> stage_times();
  const LayerTime& passes_of(int layer);
  LayerTime computed_passes(int layer);
  double beside_products(const LayerCost& cost) const;
  void add_context(const LayerCost& layer, LayerTime& time) const;
  void add_collectives(double padded, LayerTime& time);
  double addition(double padded) const;
  StageTime stage_time(const StageRange& stage);
  StageTime plain_stage_time(const StageRange& stage);
  struct Pass {
    double forward = 0, end = 0;  ///< When its forwards have ended, and all of it.
  };
  Pass pass(const fsdp::Visits& units, const std::vector<LayerTime>& layers, bool last);
  mp::Timeline pipeline(const std::vector<StageTime>& stages) const;
  double elements(int rank);
  double update(int rank);
  double refresh(int rank);
  double stall(int rank);
  double group(Collective collective, GroupAxis axis, double bytes) {
    return groups_.seconds(collective, place_of(request_, a_, axis), bytes);
  }

  Rehearsals& rehearsals_;
  const PlanRequest& request_;
  GroupCost& groups_;
  const Arrangement& a_;
  double tokens_, element_, stream_bytes_;
  std::array<std::optional<LayerTime>, 3> passes_;  // of the embedding, a block, the head
};

/// All blocks are alike, so of the chain's layers three are computed.
const LayerTime& StepModel::passes_of(int layer) {
  const int last = static_cast<int>(rehearsals_.layers(a_.tensor).size()) - 1;
  const std::size_t kind = layer == 0 ? 0 : layer == last ? 2 : 1;
  if (!passes_[kind]) {
    passes_[kind] = computed_passes(layer);
  }
  return *passes_[kind];
}

/// Computing, and what tensor ranks exchange around it.
LayerTime StepModel::computed_passes(int layer) {
  const std::vector<LayerCost>& layers = rehearsals_.layers(a_.tensor);
  const LayerCost& cost = layers[static_cast<std::size_t>(layer)];
  LayerTime time;
  const double per_flop = tokens_ / request_.machine.flops(request_.precision);
  const double beside = beside_products(cost);
  time.forward = per_flop * cost.forward_flops + beside;
  const bool anew = a_.recompute && cost.is_block;
  time.recompute = anew ? per_flop * cost.again_flops + beside : 0;
  if (a_.tensor > 1) {
    const double gather = group(Collective::all_gather, GroupAxis::tensor, stream_bytes_);
    const double scatter = group(Collective::reduce_scatter, GroupAxis::tensor, stream_bytes_);
    if (cost.is_block) {
      time.tensor_forward = time.tensor_backward = 2 * (gather + scatter);
      time.tensor_backward += anew ? time.tensor_forward - scatter : 0;
    } else {
      // Rows are dealt after the embedding, and gathered before the head; backwards the reverse.
      const bool embedding = layer == 0;
      time.tensor_forward = embedding ? scatter : gather;
      time.tensor_backward = embedding ? gather : scatter;
    }
  }
  add_context(cost, time);
  return time;
}

/// What a layer's forward takes beside its products, and either half of a backward again: each
/// tensor that is kept was written and is read, and so are weights, which products take packed.
// Unmeasured, the share of the peak stands for all that a device does.
double StepModel::beside_products(const LayerCost& cost) const {
  const TrainingMachine& machine = request_.machine;
  const double overhead = cost.is_block ? machine.measured.layer_overhead_s : 0;
  if (machine.measured.flops == 0 || cost.forward_flops == 0) {
    return overhead;
  }
  const double bytes = tokens_ * cost.tape_bytes + element_ * cost.parameters;
  return overhead + bytes / machine.memory_bytes_per_s();
}

/// Keys and values go around a ring while attention computes with those that are there.
void StepModel::add_context(const LayerCost& layer, LayerTime& time) const {
  if (a_.context == 1 || !layer.is_block) {
    return;
  }
  const GroupPlace place = place_of(request_, a_, GroupAxis::context);
  const ModelShape& model = request_.model;
  const double bytes = tokens_ * 2 * static_cast<double>(model.kv_width()) * element_ / a_.tensor;
  const double ring = (a_.context - 1) * (groups_.message_latency(place) +
                                          bytes * groups_.message_seconds_per_byte(place));
  const double scores = 2 * static_cast<double>(request_.sequence * model.attention_width()) *
                        tokens_ / a_.tensor / request_.machine.flops(request_.precision);
  time.context_forward = std::max(0.0, ring - scores);
  // Gradients of keys and values travel, too, while twice as much is computed.
  time.context_backward = std::max(0.0, 2 * ring - 2 * scores);
  time.context_backward += a_.recompute ? time.context_forward : 0;
}

/// Of a unit: fsdp's hops by its row, the first in each micro-batch where gradients are sharded.
void StepModel::add_collectives(double padded, LayerTime& time) {
  const fsdp::Sharding sharding = sharding_of(request_, a_);
  if (fsdp::gathers_parameters(sharding)) {
    time.gather = group(Collective::all_gather, GroupAxis::shard, padded * element_);
  }
  // The rule that the engine goes by: a tree adds a rank's micro-batches before ranks.
  const bool every_micro_step =
      fsdp::gradient_rules(sharding, options_of(request_, a_, a_.microbatches)).every_micro_step;
  double elements = padded;
  bool first = true;
  for (const fsdp::Hop& hop : fsdp::reduction_hops(sharding, request_.wire)) {
    const GroupAxis axis = hop.axis == fsdp::shard_axis ? GroupAxis::shard : GroupAxis::replica;
    const double bytes = elements * static_cast<double>(size_of(hop.wire));
    const double seconds =
        group(hop.scatters ? Collective::reduce_scatter : Collective::all_reduce, axis, bytes);
    time.reduce += first && every_micro_step ? seconds : 0;
    time.last_reduce += seconds;
    elements /= hop.scatters ? sharding.size(hop.axis) : 1;
    first = false;
  }
}

/// In a tree a micro-batch's gradient is made by itself and then added; in sequence a product adds
/// to what is there. Of k gradients k - 1 are added, here a part of one in each micro-batch.
double StepModel::addition(double padded) const {
  if (request_.gradient_order != GradientOrder::tree) {
    return 0;
  }
  const double share = 1 - 1.0 / a_.microbatches;
  // A copy of a byte reads one and writes one.
  return share * padded * addition_bytes / (2 * request_.machine.memory_bytes_per_s());
}

/// A stage whose collectives cost nothing: what the bound knows.
StageTime StepModel::plain_stage_time(const StageRange& stage) {
  StageTime sum;
  for (int layer = stage.first; layer < stage.end; ++layer) {
    const LayerTime& one = passes_of(layer);
    sum.compute += 3 * one.forward;
    sum.recompute += one.recompute;
    sum.tensor += one.tensor_forward + one.tensor_backward;
    sum.context += one.context_forward + one.context_backward;
    sum.forward += one.forward + one.tensor_forward + one.context_forward;
    sum.backward += 2 * one.forward + one.recompute + one.tensor_backward + one.context_backward;
  }
  return sum;
}

/// What one rank does for one micro-batch, a layer a stage, in the order of fsdp's schedule of
/// gathers. `sums`: by layer, whether its gradient is summed behind its backward.
std::vector<mp::Action> pass_actions(const fsdp::Visits& order, bool gathers,
                                     const std::vector<bool>& sums) {
  std::vector<mp::Action> actions;
  const auto add = [&](mp::Op op, int stage, int microbatch = mp::no_microbatch) {
    actions.push_back({.op = op, .stage = stage, .microbatch = microbatch});
  };
  fsdp::GatherSchedule gathering(order);
  for (const int unit : gathers ? gathering.restart() : std::vector<int>{}) {
    add(mp::Op::unshard, unit);
  }
  for (const Visit& visit : order.step) {
    const fsdp::VisitActions now = gathers ? gathering.acquire(visit.unit) : fsdp::VisitActions{};
    for (const int unit : now.drop) {
      add(mp::Op::reshard, unit);
    }
    for (const int unit : now.gather) {
      add(mp::Op::unshard, unit);
    }
    const bool forward = visit.pass == VisitPass::forward;
    add(forward ? mp::Op::forward : mp::Op::backward, visit.unit, 0);
    if (gathers && gathering.release(visit.unit)) {
      add(mp::Op::reshard, order.values_of[static_cast<std::size_t>(visit.unit)]);
    }
    if (!forward && sums[static_cast<std::size_t>(visit.unit)]) {
      add(mp::Op::reduce, visit.unit);
    }
  }
  return actions;
}

/// When the last forward of a pass ends.
double forward_end(const mp::Schedule& schedule, const mp::Timeline& timeline) {
  double end = 0;
  for (std::size_t at = 0; at < schedule.actions.front().size(); ++at) {
    const bool forward = schedule.actions.front()[at].op == mp::Op::forward;
    end = forward ? std::max(end, timeline.spans.front()[at].end) : end;
  }
  return end;
}

/// When everything of a rank has ended, sums beside its last computation too.
double last_end(const mp::Timeline& timeline, std::size_t rank) {
  double end = 0;
  for (const mp::TimeSpan& span : timeline.spans[rank]) {
    end = std::max(end, span.end);
  }
  return end;
}

/// One micro-batch's forward and backward of a stage on one rank. Each layer is a stage of a
/// pipeline of one, so that mp's simulator has gathers and sums go beside what is computed.
StepModel::Pass StepModel::pass(const fsdp::Visits& units, const std::vector<LayerTime>& layers,
                                bool last) {
  fsdp::Visits order = units;
  order.micro_steps = 1;
  order.step = visits_of(
      {0, static_cast<int>(layers.size())},
      {{.op = mp::Op::forward, .microbatch = 0}, {.op = mp::Op::backward, .microbatch = 0}});
  mp::PipelineCosts costs;
  std::vector<bool> sums;
  bool gathers = false;
  for (const LayerTime& one : layers) {
    const double backward =
        2 * one.forward + one.recompute + one.tensor_backward + one.context_backward + one.addition;
    costs.stages.push_back({.forward = one.forward + one.tensor_forward + one.context_forward,
                            .backward_input = backward / 2,
                            .backward_weight = backward / 2,
                            .unshard = one.gather,
                            .reduce = last ? one.last_reduce : one.reduce});
    sums.push_back(costs.stages.back().reduce > 0);
    gathers = gathers || one.gather > 0;
  }
  const mp::Schedule schedule{.name = "pass",
                              .microbatches = 1,
                              .rank_of_stage = std::vector<int>(layers.size(), 0),
                              .actions = {pass_actions(order, gathers, sums)}};
  const mp::Timeline timeline = mp::simulate(schedule, costs);
  return {.forward = forward_end(schedule, timeline), .end = last_end(timeline, 0)};
}

StageTime StepModel::stage_time(const StageRange& stage) {
  StageTime time = plain_stage_time(stage);
  const fsdp::Visits units = units_of(rehearsals_, a_, stage, {});
  std::vector<LayerTime> layers;
  double collectives = 0;
  for (int layer = stage.first; layer < stage.end; ++layer) {
    const auto unit = static_cast<std::size_t>(layer - stage.first);
    layers.push_back(passes_of(layer));
    const auto padded = static_cast<double>(units.elements[unit]);
    add_collectives(padded, layers.back());
    layers.back().addition = addition(padded);
    time.additions += layers.back().addition;
    // Whoever is tied uses what its owner gathers.
    const bool tied = units.values_of[unit] != static_cast<int>(unit);
    layers.back().gather = tied ? 0 : layers.back().gather;
    collectives += layers.back().gather + layers.back().last_reduce;
  }
  time.backward += time.additions;
  if (collectives == 0) {
    return time;
  }
  // What the last micro-batch sums beyond the others shows in the difference of two passes.
  const Pass ordinary = pass(units, layers, false), last = pass(units, layers, true);
  time.forward = ordinary.forward;
  time.backward = ordinary.end - ordinary.forward;
  time.last_more = std::max(0.0, last.end - ordinary.end);
  return time;
}

/// Passes of stages, with what they expose, over the whole step. A backward is given in halves,
/// since the simulator has schedules that part them.
mp::Timeline StepModel::pipeline(const std::vector<StageTime>& stages) const {
  const GroupPlace place = place_of(request_, a_, GroupAxis::pipeline);
  mp::PipelineCosts costs{.stages = {},
                          .latency = groups_.message_latency(place),
                          .seconds_per_byte = groups_.message_seconds_per_byte(place)};
  for (const StageTime& stage : stages) {
    costs.stages.push_back({.forward = stage.forward,
                            .backward_input = stage.backward / 2,
                            .backward_weight = stage.backward / 2,
                            .output_bytes = static_cast<std::uint64_t>(stream_bytes_ / a_.tensor)});
  }
  return mp::simulate(rehearsals_.schedule(a_.pipeline, a_.microbatches), costs);
}

/// Elements of a rank's units, padded.
double StepModel::elements(int rank) {
  double count = 0;
  const StageRange stage = rehearsals_.stages(a_.pipeline)[static_cast<std::size_t>(rank)];
  for (const std::size_t one : units_of(rehearsals_, a_, stage, {}).elements) {
    count += static_cast<double>(one);
  }
  return count;
}

double StepModel::update(int rank) {
  // Every part of a flat buffer is as long, and each rank updates one.
  const int parts = fsdp::optimizer_part(sharding_of(request_, a_), 0).parts;
  // A copy of a byte reads one and writes one.
  return elements(rank) / parts * update_bytes / (2 * request_.machine.memory_bytes_per_s());
}

/// What ranks update of parameters that all of them use is gathered before the next step.
double StepModel::refresh(int rank) {
  const fsdp::Sharding sharding = sharding_of(request_, a_);
  // Rows that gather for use keep shards, so what is refreshed is a shard of the shards.
  const bool gathers = fsdp::gathers_parameters(sharding);
  double seconds = 0;
  for (const fsdp::Axis axis : fsdp::refresh_axes(sharding)) {
    const double bytes = elements(rank) / (gathers ? sharding.shards : 1) * element_;
    seconds += group(Collective::all_gather,
                     axis == fsdp::shard_axis ? GroupAxis::shard : GroupAxis::replica, bytes);
  }
  return seconds;
}

/// Of a rank's checkpoints on their way to the host and back, by mp's model of one link.
double StepModel::stall(int rank) {
  if (!a_.offload) {
    return 0;
  }
  const std::vector<LayerCost>& layers = rehearsals_.layers(a_.tensor);
  std::vector<mp::StageLayers> stages;
  for (const StageRange& range : rehearsals_.stages(a_.pipeline)) {
    mp::StageLayers stage{.first = range.first, .tape_bytes = {}};
    for (int at = range.first; at < range.end; ++at) {
      stage.tape_bytes.push_back(
          static_cast<std::size_t>(tokens_ * layers[static_cast<std::size_t>(at)].input_bytes));
    }
    stages.push_back(std::move(stage));
  }
  const int shown = rehearsed_microbatches(request_, a_);
  const mp::Schedule& schedule = rehearsals_.schedule(a_.pipeline, shown);
  const ActivationProgram program = mp::activation_program(schedule, rank, stages);
  mp::ActivationTimes times;
  for (const TapeStep& step : program.steps) {
    const LayerTime& layer = passes_of(program.tapes[static_cast<std::size_t>(step.tape)].layer);
    times.steps.push_back(step.pass == TapePass::forward
                              ? layer.forward + layer.tensor_forward
                              : 2 * layer.forward + layer.recompute + layer.tensor_backward);
  }
  // The ranks of a host may share the link's other end, the host's memory, which is faster.
  for (const std::size_t bytes : program.storage_bytes) {
    times.stores.push_back(static_cast<double>(bytes) / request_.machine.host_link_bytes_per_s());
  }
  times.loads = times.stores;
  const mp::StallModel model =
      mp::model_stall(program, mp::plan_activations(program, OffloadOptions{}), times);
  return (model.stall + model.store_wait) * a_.microbatches / shown;
}

std::vector<StageTime> StepModel::stage_times() {
  const std::vector<StageRange>& ranges = rehearsals_.stages(a_.pipeline);
  std::vector<StageTime> stages;
  std::map<std::array<int, 3>, StageTime> known;  // stages of as many blocks, and ends, are alike
  const int layers = static_cast<int>(rehearsals_.layers(a_.tensor).size());
  for (const StageRange& range : ranges) {
    const std::array<int, 3> kind{range.end - range.first, range.first == 0, range.end == layers};
    const auto found = known.find(kind);
    stages.push_back(found != known.end() ? found->second
                                          : known.emplace(kind, stage_time(range)).first->second);
  }
  return stages;
}

std::string StepModel::trace() {
  return mp::to_trace(rehearsals_.schedule(a_.pipeline, a_.microbatches), pipeline(stage_times()));
}

/// Stages, the pipeline of them, and what follows its last backward.
StepTime StepModel::all() {
  const std::vector<StageTime> stages = stage_times();
  const mp::Timeline timeline = pipeline(stages);
  // Parts are told of the rank that computes longest: shortening any other shortens no step.
  std::size_t busiest = 0;
  for (std::size_t rank = 0; rank < stages.size(); ++rank) {
    busiest = timeline.ranks[rank].busy > timeline.ranks[busiest].busy ? rank : busiest;
  }
  const StageTime& stage = stages[busiest];
  const double count = a_.microbatches;
  StepTime step{.compute = count * stage.compute,
                .recompute = count * stage.recompute,
                .tensor = count * stage.tensor,
                .context = count * stage.context,
                .parameters = count * stage.exposed(),
                .additions = count * stage.additions,
                .messages = timeline.ranks[busiest].exposed_communication};
  const double busy = count * (stage.forward + stage.backward);
  // Whatever is left of the pipeline's time its rank has waited for other ranks to compute.
  const double waited = timeline.makespan - busy - step.messages;
  step.bubble = waited > 1e-9 * timeline.makespan ? waited : 0;
  for (int rank = 0; rank < a_.pipeline; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    // Stages that end early sum while others still compute.
    const double rest = timeline.makespan - last_end(timeline, at);
    step.gradients = std::max(step.gradients, stages[at].last_more + refresh(rank) -
                                                  std::min(rest, stages[at].last_more));
    step.optimizer = std::max(step.optimizer, update(rank));
    step.stall = std::max(step.stall, stall(rank));
  }
  // A loader reads while a step computes, so only what is longer shows.
  const double loading = static_cast<double>(request_.batch_sequences * request_.sequence) *
                         token_bytes / (request_.machine.loader_bytes_per_s());
  step.loader = std::max(0.0, loading - step.total());
  return step;
}

/// A rank begins when the stages before it have forwarded one micro-batch, and ends before they
/// have brought its last one back; between these it computes all of them.
double StepModel::least() {
  double before = 0, most = 0;
  for (const StageRange& range : rehearsals_.stages(a_.pipeline)) {
    const StageTime stage = plain_stage_time(range);
    const double one = stage.compute + stage.recompute + stage.tensor;
    most = std::max(most, before + a_.microbatches * one);
    before += one;
  }
  constexpr double rounding = 1 - 1e-9;  // the simulator adds in another order
  return most * rounding;
}

}  // namespace

const std::vector<TimePart>& time_parts() {
  static const std::vector<TimePart> parts = {
      {"compute", &StepTime::compute},       {"recomputation", &StepTime::recompute},
      {"tensor ranks", &StepTime::tensor},   {"context ranks", &StepTime::context},
      {"parameters", &StepTime::parameters}, {"gradients", &StepTime::gradients},
      {"additions", &StepTime::additions},   {"messages", &StepTime::messages},
      {"bubble", &StepTime::bubble},         {"stall", &StepTime::stall},
      {"optimizer", &StepTime::optimizer},   {"loader", &StepTime::loader},
  };
  return parts;
}

StepTime time_of(Rehearsals& rehearsals, GroupCost& groups, const Arrangement& arrangement) {
  return StepModel(rehearsals, groups, arrangement).all();
}

double least_time(Rehearsals& rehearsals, GroupCost& groups, const Arrangement& arrangement) {
  return StepModel(rehearsals, groups, arrangement).least();
}

std::string trace_of(const PlanRequest& request, const Arrangement& arrangement) {
  Rehearsals rehearsals(request);
  GroupCost groups(request.machine);
  return StepModel(rehearsals, groups, arrangement).trace();
}

double tokens_per_second(const PlanRequest& request, double step_seconds) {
  return static_cast<double>(request.batch_sequences * request.sequence) / step_seconds;
}

double utilisation(const PlanRequest& request, double step_seconds) {
  const Device& device = request.machine.device;
  const double peak =
      (request.precision == DType::f32 ? device.wide_TFLOPS : device.narrow_TFLOPS) * 1e12;
  return tokens_per_second(request, step_seconds) *
         model_flops_per_token(request.model, request.sequence) / (peak * request.ranks());
}

}  // namespace sprat::planning
