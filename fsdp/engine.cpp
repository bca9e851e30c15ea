// How a training step goes: gathers ahead of use, sums behind it, then norm, clip and update.
#include "fsdp/engine.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "comm/base/check.hpp"
#include "fsdp/clip.hpp"
#include "fsdp/counters.hpp"
#include "fsdp/plan/options.hpp"
#include "sprat/wire.hpp"

namespace sprat::fsdp {
namespace {

/// Null for memory: shards lie where peers can map them, which no tier offers.
std::unique_ptr<io::Tier> open_shard_tier(const std::string& name) {
  auto tier = io::open_tier(name);
  return name == "memory" ? nullptr : std::move(tier);
}

/// The row and mesh of a unit: persistent parameters are replicated over all ranks, whatever the
/// others are.
Sharding sharding_of(std::size_t unit, const PersistentSplit& split, const Sharding& visited) {
  return unit < split.visited() ? visited : replicated_sharding(visited.ranks());
}

Visits visits(const PersistentSplit& split, const Sharding& sharding, const FsdpOptions& options) {
  Visits order{.units = {},
               .step = options.visits,
               .evaluation = options.evaluation,
               .ahead = options.prefetch_units,
               .max_live = options.max_live_elements,
               .elements = {},
               .micro_steps = options.micro_steps,
               .unvisited = static_cast<int>(split.units.size() - split.visited())};
  for (std::size_t unit = 0; unit < split.units.size(); ++unit) {
    const int parts = optimizer_part(sharding_of(unit, split, sharding), 0).parts;
    const UnitSpec& spec = split.units[unit];
    order.units.push_back(spec.name);
    order.elements.push_back(lay_out(spec, parts, split.origins[unit]).padded);
    order.values_of.push_back(spec.tied_to < 0 ? static_cast<int>(unit) : spec.tied_to);
  }
  return order;
}

SumsUnderWay sums_under_way(const GradientRules& rules, const Visits& order) {
  const ReductionOrder none(rules, order.elements);
  return {.first = none, .second = none};
}

/// Elements of a parameter in a unit that every rank has whole.
std::span<float> item_of(Unit& unit, int index) {
  const FlatItem& item = unit.layout().items[static_cast<std::size_t>(index)];
  return unit.gradient().own().subspan(item.offset, item.count);
}

void add_values(std::span<const float> values, std::span<float> onto) {
  for (std::size_t i = 0; i < onto.size(); ++i) {
    onto[i] += values[i];
  }
}

/// This rank's parts of units that lie in the same way.
void add_gradient(const UnitGradient& values, const UnitGradient& onto) {
  values.fetch();
  onto.fetch();
  add_values(values.own(), onto.own());
  values.release();
  onto.release();
}

std::vector<Sharding> shardings(const PersistentSplit& split, const Sharding& visited) {
  std::vector<Sharding> result;
  for (std::size_t unit = 0; unit < split.units.size(); ++unit) {
    result.push_back(sharding_of(unit, split, visited));
  }
  return result;
}

}  // namespace

Engine::Engine(Communicator& world, std::vector<UnitSpec> units, FsdpOptions options,
               const QueueKind& queues)
    : options_(checked(std::move(options))),
      split_(split_persistent(checked(std::move(units)), options_.persistence_threshold)),
      sharding_(choose_sharding(world.size(), options_.strategy, options_.hybrid_shard_degree)),
      mesh_(world, {{"replica", sharding_.replicas}, {"shard", sharding_.shards}}),
      optimizer_(make_optimizer(options_.optimizer)),
      scaler_(options_.loss_scale),
      order_(visits(split_, sharding_, options_)),
      reductions_(sums_under_way(gradient_rules(sharding_, options_), order_.declared())),
      replicas_(mesh_["replica"], queues.make()),
      shards_(mesh_["shard"], queues.make()),
      everyone_(world, queues.make()),
      state_tier_(io::open_tier(options_.state_tier)),
      shard_tier_(open_shard_tier(options_.shard_tier)),
      progress_(no_progress()) {
  open_encoded_sums(queues);
  const SlotPlans plans =
      plan_memory(order_.declared(), shardings(split_, sharding_), options_, optimizer_states());
  memory_plan_ = plans.memory;
  arenas_.parameters.emplace(plans.parameters, queues.poisons_slots);
  arenas_.gradients.emplace(plans.gradients, queues.poisons_slots);
  arenas_.narrowed.emplace(plans.narrowed, queues.poisons_slots);
  arenas_.sums.emplace(plans.sums, queues.poisons_slots);
  for (std::size_t unit = 0; unit < split_.units.size(); ++unit) {
    units_.push_back(std::make_unique<Unit>(split_.units[unit], split_.origins[unit],
                                            static_cast<int>(unit),
                                            UnitHome{.spread = spread_of(unit),
                                                     .rank = world.rank(),
                                                     .units = static_cast<int>(split_.units.size()),
                                                     .options = options_,
                                                     .states = optimizer_states(),
                                                     .parameter_slots = &*arenas_.parameters,
                                                     .gradient_slots = &*arenas_.gradients,
                                                     .narrowed_slots = &*arenas_.narrowed,
                                                     .sum_slots = &*arenas_.sums,
                                                     .state_tier = state_tier_.get(),
                                                     .shard_tier = shard_tier_.get(),
                                                     .traffic = traffic_}));
  }
  gather(order_.restart());
}

std::vector<Unit*> Engine::with_parameters() const {
  std::vector<Unit*> units;
  for (const auto& unit : units_) {
    if (unit->has_parameters()) {
      units.push_back(unit.get());
    }
  }
  return units;
}

Spread Engine::spread_of(std::size_t unit) {
  const Sharding sharding = sharding_of(unit, split_, sharding_);
  const DType wire = options_.gradient_wire;
  if (unit < split_.visited()) {
    return {.sharding = sharding,
            .axis_communicators = {&replicas_, &shards_},
            .gradient_wire = wire,
            .encoded_sums = encoded_.sums ? &*encoded_.sums : nullptr};
  }
  // Few numbers, of norms and biases: blocks would save little and lose much.
  return {.sharding = sharding,
          .axis_communicators = {&everyone_, nullptr},
          .gradient_wire = has_block_scales(wire) ? DType::f32 : wire};
}

void Engine::open_encoded_sums(const QueueKind& queues) {
  const std::vector<Hop> hops = reduction_hops(sharding_, options_.gradient_wire);
  if (hops.empty() || !has_block_scales(hops.back().wire)) {
    return;
  }
  const bool of_replicas = hops.back().axis == replica_axis;
  AxisCommunicator& exchanges = of_replicas ? replicas_ : shards_;
  if (!hops.back().scatters) {
    encoded_.ranks.emplace(
        mesh_[of_replicas ? "replica" : "shard"].duplicate("replies", Failing::together));
    encoded_.replies.emplace(*encoded_.ranks, queues.make());
  }
  encoded_.sums.emplace(exchanges, encoded_.replies ? *encoded_.replies : exchanges,
                        hops.back().wire);
}

void Engine::check_unit(int unit) const {
  require(unit >= 0 && unit < static_cast<int>(split_.visited()), "there is no unit ", unit,
          "; units are 0 to ", split_.visited() - 1);
}

PersistentSplit::Place Engine::place(int unit, int index) const {
  const auto& places = split_.places[static_cast<std::size_t>(unit)];
  require(index >= 0 && index < static_cast<int>(places.size()), "unit \"",
          split_.units[static_cast<std::size_t>(unit)].name, "\" has no parameter ", index,
          "; it has ", places.size());
  return places[static_cast<std::size_t>(index)];
}

void Engine::gather(const std::vector<int>& units) {
  for (const int unit : units) {
    at(unit).parameters().start_gather();
  }
}

void Engine::acquire(int unit) {
  const VisitActions actions = order_.acquire(unit);
  for (const int unused : actions.drop) {
    at(unused).parameters().drop();
  }
  gather(actions.gather);
  const std::optional<Visit> visit = order_.visit();
  if (visit && adds_gradient(visit->pass)) {
    expect_gradient(*visit);
  }
  if (shard_tier_) {
    for (const int soon : order_.upcoming()) {
      at(soon).parameters().fetch();
    }
  }
  advance_reductions();
  if (order_.reads(unit)) {
    at(values_of(unit)).parameters().finish();
  }
}

void Engine::release(int unit) {
  if (order_.release(unit)) {
    at(values_of(unit)).parameters().drop();
  }
}

bool Engine::has_values(int unit) const {
  check_unit(unit);
  return order_.reads(unit);
}

ConstElements Engine::parameter(int unit, int index) const {
  check_unit(unit);
  require(order_.acquired(unit), "parameter(", unit, ", ", index, ") of unit \"",
          split_.units[static_cast<std::size_t>(unit)].name,
          "\", which is not acquired; acquire() it first");
  require(order_.reads(unit), "parameter(", unit, ", ", index, ") of unit \"",
          split_.units[static_cast<std::size_t>(unit)].name,
          "\" in a visit that is declared to need a gradient alone; declare it as backward");
  const PersistentSplit::Place where = place(values_of(unit), index);
  return at(where.unit).parameters().full(where.index);
}

GradientProgress Engine::no_progress() const {
  return {.reduced = std::vector<int>(split_.units.size(), 0),
          .visited = std::vector<int>(split_.visited(), 0),
          .awaited = std::vector<int>(static_cast<std::size_t>(options_.micro_steps),
                                      static_cast<int>(split_.visited()))};
}

/// Buffers are chosen as the visits come, which is how the plan of memory chose them; they are
/// lent when somebody writes. Any unit may have parameters that persist.
void Engine::expect_gradient(const Visit& visit) {
  progress_.visited[static_cast<std::size_t>(visit.unit)] = visit.microbatch;
  if (adds_in_tree()) {
    at(visit.unit).gradient().expect(visit.microbatch);
    for (std::size_t unit = split_.visited(); unit < units_.size(); ++unit) {
      units_[unit]->gradient().expect(visit.microbatch);
    }
  }
}

int Engine::microbatch_of(int unit, std::optional<int> named) const {
  require(!named || (*named >= 0 && *named < options_.micro_steps), "there is no micro-batch ",
          named.value_or(0), "; micro-batches are 0 to ", options_.micro_steps - 1);
  return named.value_or(progress_.visited[static_cast<std::size_t>(unit)]);
}

GradientTarget Engine::gradient_target(int unit, int index, std::optional<int> microbatch) {
  check_unit(unit);
  const PersistentSplit::Place where = place(unit, index);
  require(progress_.reduced[static_cast<std::size_t>(unit)] < options_.micro_steps,
          "gradient() of unit \"", split_.units[static_cast<std::size_t>(unit)].name,
          "\" after its reduce(); its next gradient belongs to the next step");
  const int number = microbatch_of(unit, microbatch);
  require(!adds_in_tree() || !at(unit).gradient().is_finished(number), "gradient() of unit \"",
          split_.units[static_cast<std::size_t>(unit)].name, "\" in micro-batch ", number,
          ", after the reduce() of that; acquire() the unit for the next first, or name it");
  finish_first_sums(reductions_.first.end_through(unit));
  return at(where.unit).gradient().target(where.index, number);
}

void Engine::reduce(int unit, std::optional<int> microbatch) {
  check_unit(unit);
  const int number = microbatch_of(unit, microbatch);
  int& reduced = progress_.reduced[static_cast<std::size_t>(unit)];
  require(reduced < options_.micro_steps, "reduce() of unit \"",
          split_.units[static_cast<std::size_t>(unit)].name, "\" came ", reduced + 1,
          " times before step(); micro_steps is ", options_.micro_steps);
  require(!adds_in_tree() || !at(unit).gradient().is_finished(number), "reduce() of unit \"",
          split_.units[static_cast<std::size_t>(unit)].name, "\" came twice in micro-batch ",
          number, "; acquire() the unit for the next first, or name it");
  finish_first_sums(reductions_.first.end_through(unit));  // of the micro-step before
  ++reduced;
  if (adds_in_tree()) {
    finish_microbatch(unit, number);
  }
  if (reduced == options_.micro_steps || gradient_rules(sharding_, options_).every_micro_step) {
    start_first_sum(unit);
  }
}

void Engine::finish_microbatch(int unit, int microbatch) {
  at(unit).gradient().finish_microbatch(microbatch);
  if (--progress_.awaited[static_cast<std::size_t>(microbatch)] == 0) {
    for (std::size_t persistent = split_.visited(); persistent < units_.size(); ++persistent) {
      units_[persistent]->gradient().finish_microbatch(microbatch);
    }
  }
}

void Engine::start_first_sum(int unit) {
  finish_first_sums(reductions_.first.begin(unit));
  at(unit).gradient().start_first_sum();
}

void Engine::finish_first_sums(const std::vector<int>& units) {
  for (const int unit : units) {
    const bool last = progress_.reduced[static_cast<std::size_t>(unit)] == options_.micro_steps;
    if (last) {
      limit_second_sums(unit);
    }
    at(unit).gradient().finish_first_sum(last);
  }
}

/// Second sums of encoded blocks have memory beside the gradient, so no more of them are under way
/// than first sums may be. Others need none, and end with the step.
bool Engine::limits_second_sum(int unit) const {
  return gradient_rules(sharding_, options_).encoded_second &&
         unit < static_cast<int>(split_.visited());
}

void Engine::limit_second_sums(int unit) {
  if (!limits_second_sum(unit)) {
    return;
  }
  for (const int older : reductions_.second.begin(unit)) {
    at(older).gradient().finish_sums();
  }
}

/// Whether that, and the start of the second sum behind it, waits for nobody.
bool Engine::may_finish_first_sum(int unit) {
  return at(unit).gradient().first_sum_done() &&
         (!limits_second_sum(unit) ||
          std::ranges::all_of(reductions_.second.in_the_way_of(unit), [this](int older) {
            return at(older).gradient().second_sum_done();
          }));
}

/// Sums over replicas need not wait for the next reduce(). They begin in the same order on every
/// rank, if not at the same place among gathers, which are on the other axis. Nothing is waited for
/// here: whether a sum has ended is another answer on each rank, so one would wait where others do
/// not, and if those wait for it between two visits, as its stages and tensor ranks do, all would
/// for ever.
void Engine::advance_reductions() {
  if (encoded_.sums) {
    encoded_.sums->advance();
  }
  for (int unit = reductions_.first.oldest(); unit >= 0 && may_finish_first_sum(unit);
       unit = reductions_.first.oldest()) {
    finish_first_sums(reductions_.first.end_through(unit));
  }
}

void Engine::finish_reductions() {
  // No reduce() names a unit that is not visited; its gradients have come once all passes are over.
  for (std::size_t unit = split_.visited(); unit < units_.size(); ++unit) {
    progress_.reduced[unit] = options_.micro_steps;
    start_first_sum(static_cast<int>(unit));
  }
  finish_first_sums(reductions_.first.end_all());
  reductions_.second.end_all();
  for (const auto& unit : units_) {
    unit->gradient().finish_sums();
  }
  for (std::size_t unit = 0; unit < split_.visited(); ++unit) {
    if (split_.units[unit].tied_to >= 0) {
      add_tied_gradient(static_cast<int>(unit));
    }
  }
}

/// What is visited lies in the same way in both units. What persists has all its elements here.
void Engine::add_tied_gradient(int unit) {
  const int owner = values_of(unit);
  add_gradient(at(unit).gradient(), at(owner).gradient());
  const auto& places = split_.places[static_cast<std::size_t>(unit)];
  for (std::size_t index = 0; index < places.size(); ++index) {
    if (places[index].unit != unit) {
      const PersistentSplit::Place to = place(owner, static_cast<int>(index));
      add_values(item_of(at(places[index].unit), places[index].index),
                 item_of(at(to.unit), to.index));
    }
  }
}

std::vector<SquareSum> Engine::square_sums() {
  require(finished_, "square_sums() before finish_gradients()");
  std::vector<SquareSum> sums(split_.visited());
  const auto add = [&](std::size_t first, std::size_t end) {
    for (std::size_t unit = first; unit < end; ++unit) {
      if (unit + 1 < units_.size()) {
        units_[unit + 1]->gradient().fetch();
      }
      units_[unit]->add_squares(sums);
    }
  };
  add(0, split_.visited());
  add_over_parts(sums);
  add(split_.visited(), units_.size());  // what persists, which every rank has whole
  return sums;
}

/// Over the axes along which ranks update different parts; along the others they hold the same,
/// which would be counted again.
void Engine::add_over_parts(std::span<SquareSum> sums) {
  const Spread& spread = units_.front()->spread();  // of all that are visited
  for (const Axis axis : {replica_axis, shard_axis}) {
    if (spread.sharding.size(axis) > 1 &&
        spread.sharding.strategy->optimizer[axis] == Placement::flat) {
      spread.axis_communicators[axis]
          ->all_reduce(words_of(sums), words_of(sums), traffic_.norm)
          .wait();
    }
  }
}

void Engine::update(float learning_rate, double scale) {
  const TraceSpan span(world().tracer(), TraceRow::computes, "update");
  ++steps_;
  optimizer_->begin_step(steps_, learning_rate, scale);
  // What comes first in the next step is made whole while the rest is updated, and so it is updated
  // first.
  const std::vector<int> first = order_.restart();
  std::vector<Unit*> units;
  for (const int unit : first) {
    units.push_back(&at(unit));
  }
  for (Unit* const unit : with_parameters()) {
    if (std::ranges::find(units, unit) == units.end()) {
      units.push_back(unit);
    }
  }
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (i + 1 < units.size()) {
      units[i + 1]->fetch_state();
    }
    units[i]->update(*optimizer_, steps_);
    if (i < first.size()) {
      units[i]->parameters().start_gather();
    }
  }
}

StepResult Engine::step(float learning_rate, double divisor) {
  finish_gradients();
  SquareSum squares;
  for (const SquareSum& of_unit : square_sums()) {
    squares += of_unit;
  }
  return apply(learning_rate, std::sqrt(squares.value()), divisor);
}

void Engine::check_between_passes() const {
  require(order_.between_passes(), "step() in the middle of a pass: next comes ", order_.expected(),
          ", and every acquire() has its release() before");
}

void Engine::finish_gradients() {
  check_between_passes();
  for (std::size_t unit = 0; unit < split_.visited(); ++unit) {
    require(progress_.reduced[unit] == options_.micro_steps, "step() before reduce() of unit \"",
            split_.units[unit].name, "\", which came ", progress_.reduced[unit], " of ",
            options_.micro_steps, " times");
  }
  require(!finished_, "finish_gradients() came twice; apply() comes next");
  finish_reductions();
  finished_ = true;
}

std::span<float> Engine::summed_gradient(int unit) {
  check_unit(unit);
  require(finished_, "summed_gradient(", unit, ") before finish_gradients()");
  require(values_of(unit) == unit, "summed_gradient(", unit, ") of unit \"",
          split_.units[static_cast<std::size_t>(unit)].name,
          "\", which is tied: its gradient is in that of unit ", values_of(unit));
  // One span is one place: what persists is in another unit, whole on every rank.
  const auto& places = split_.places[static_cast<std::size_t>(unit)];
  const auto stays = std::ranges::count(places, unit, &PersistentSplit::Place::unit);
  if (stays == std::ssize(places)) {
    return at(unit).gradient().own();
  }
  require(stays == 0, "summed_gradient(", unit, ") of unit \"",
          split_.units[static_cast<std::size_t>(unit)].name,
          "\", whose gradient lies in two places: some of its parameters have fewer than the ",
          options_.persistence_threshold,
          " elements of persistence_threshold; give it a unit of parameters of one kind");
  Unit& persistent = at(places.front().unit);
  const auto& segments = persistent.layout().segments;
  const auto segment = std::ranges::find(segments, unit, &FlatSegment::owner);
  return persistent.gradient().own().subspan(segment->offset, segment->count);
}

StepResult Engine::apply(float learning_rate, double grad_norm, double divisor) {
  require(divisor >= 0, "step() with a divisor of ", divisor, "; it is above 0, or 0");
  require(finished_, "apply() before finish_gradients()");
  check_between_passes();  // of an evaluation between the two
  finished_ = false;
  for (Unit* const unit : with_parameters()) {
    unit->parameters().drop();  // also ends gathers that still read what is updated
  }
  if (divisor == 0) {
    divisor = static_cast<double>(mesh_.world().size()) * options_.micro_steps;
  }
  const double inverse = 1 / (divisor * scaler_.scale());
  StepResult result{.grad_norm = grad_norm * inverse, .loss_scale = scaler_.scale()};
  result.skipped = !std::isfinite(result.grad_norm);  // the same on every rank: so is the norm
  scaler_.update(result.skipped);
  const auto rescaled = static_cast<float>(scaler_.scale() / result.loss_scale);
  for (const auto& unit : units_) {
    unit->gradient().end_step();
    if (result.skipped || rescaled != 1) {
      unit->gradient().scale_residuals(result.skipped ? 0.0f : rescaled);
    }
  }
  progress_ = no_progress();
  if (result.skipped) {
    gather(order_.restart());
  } else {
    update(learning_rate, clip_factor(result.grad_norm, options_.clip_norm) * inverse);
  }
  return result;
}

void Engine::sum_over_ranks(std::span<double> values) {
  everyone_.all_reduce(elements(values), elements(values), traffic_.control).wait();
}

ModelState Engine::held() {
  ModelState model{.states = {""}, .units = {}};
  const auto& kind = optimizer_kind();
  model.states.insert(model.states.end(), kind.states.begin(), kind.states.end());
  for (Unit* const unit : with_parameters()) {
    model.units.push_back(unit->held());
  }
  return model;
}

std::map<std::string, double> Engine::counters() const {
  std::map<std::string, double> counters = scaler_.counters();
  counters["optimizer_steps"] = static_cast<double>(steps_);
  return counters;
}

void Engine::restore(const std::map<std::string, double>& counters) {
  const std::int64_t steps = step_counter(counters, "optimizer_steps");
  scaler_.restore(counters);
  steps_ = steps;
  for (const auto& unit : units_) {
    unit->gradient().scale_residuals(0);
  }
  for (Unit* const unit : with_parameters()) {
    unit->parameters().drop();
  }
  const std::vector<int> first = order_.restart();
  for (Unit* const unit : with_parameters()) {
    unit->parameters().refresh(steps_);
  }
  gather(first);
}

std::size_t Engine::bytes_held() const {
  std::size_t bytes = 0;
  for (const auto& unit : units_) {
    bytes += unit->kept_bytes();
  }
  for (const auto* arena :
       {&arenas_.parameters, &arenas_.gradients, &arenas_.narrowed, &arenas_.sums}) {
    bytes += (*arena)->held();
  }
  return bytes;
}

std::size_t Engine::bytes_high_water() const {
  std::size_t bytes = bytes_held();
  for (const auto* arena :
       {&arenas_.parameters, &arenas_.gradients, &arenas_.narrowed, &arenas_.sums}) {
    bytes += (*arena)->high_water() - (*arena)->held();
  }
  return bytes;
}

std::int64_t Engine::parameter_count() const {
  std::int64_t count = 0;
  for (const auto& unit : units_) {
    count += static_cast<std::int64_t>(unit->parameter_count());
  }
  return count;
}

}  // namespace sprat::fsdp
