// How a training step goes: gathers ahead of use, sums behind it, then norm, clip and update.
#include "fsdp/engine.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "comm/base/check.hpp"
#include "fsdp/clip.hpp"
#include "fsdp/plan/options.hpp"

namespace sprat::fsdp {
namespace {

/// Block sums of all ranks that one rank holds at a time, if no unit alone has more: 1 MiB.
constexpr std::size_t norm_window_blocks = std::size_t{1} << 17;

/// Null for memory: shards lie where peers can map them, which no tier offers.
std::unique_ptr<io::Tier> open_shard_tier(const std::string& name) {
  auto tier = io::open_tier(name);
  return name == "memory" ? nullptr : std::move(tier);
}

/// Units that are visited: all but the one of persistent parameters.
std::size_t visited(const PersistentSplit& split) { return split.places.size(); }

Visits visits(const PersistentSplit& split, const Sharding& sharding, const FsdpOptions& options) {
  Visits order{.units = {},
               .forward = options.forward,
               .backward = options.backward,
               .ahead = options.prefetch_units,
               .max_live = options.max_live_elements,
               .elements = {},
               .micro_steps = options.micro_steps};
  const int parts = optimizer_part(sharding, 0).parts;
  for (std::size_t unit = 0; unit < visited(split); ++unit) {
    order.units.push_back(split.units[unit].name);
    order.elements.push_back(lay_out(split.units[unit], parts).padded);
  }
  return order;
}

GradientRules rules(const Sharding& sharding, const FsdpOptions& options) {
  const bool sharded = shards_gradients(sharding);
  return {.sharded = sharded,
          .every_micro_step = sharded && options.accumulate == Accumulate::two_hop,
          .narrowed = options.gradient_wire != DType::f32 && sharding.ranks() > 1,
          .in_flight = options.reductions_in_flight,
          .bucket = options.reduce_bucket_elements};
}

}  // namespace

Engine::Engine(Communicator& world, std::vector<UnitSpec> units, FsdpOptions options,
               const QueueKind& queues)
    : options_(checked(std::move(options))),
      split_(split_persistent(with_names_of_their_own(units), options_.persistence_threshold)),
      sharding_(choose_sharding(world.size(), options_.strategy, options_.hybrid_shard_degree)),
      mesh_(world, {{"replica", sharding_.replicas}, {"shard", sharding_.shards}}),
      kind_(optimizer_named(options_.optimizer.name)),
      optimizer_(make_optimizer(options_.optimizer)),
      scaler_(options_.loss_scale),
      order_(visits(split_, sharding_, options_)),
      reductions_(rules(sharding_, options_), order_.declared().elements),
      replicas_(mesh_["replica"], queues.make()),
      shards_(mesh_["shard"], queues.make()),
      everyone_(world, queues.make()),
      state_tier_(io::open_tier(options_.state_tier)),
      shard_tier_(open_shard_tier(options_.shard_tier)),
      reduced_(visited(split_), 0) {
  check_every_unit_has_a_backward(order_.declared());
  plan_memory(queues);
  UnitHome home{.sharding = sharding_,
                .axis_communicators = {&replicas_, &shards_},
                .rank = world.rank(),
                .options = options_,
                .states = static_cast<int>(kind_.states.size()),
                .parameter_slots = &*arenas_.parameters,
                .gradient_slots = &*arenas_.gradients,
                .narrowed_slots = &*arenas_.narrowed,
                .sum_slots = &*arenas_.sums,
                .state_tier = state_tier_.get(),
                .shard_tier = shard_tier_.get(),
                .traffic = traffic_};
  for (std::size_t unit = 0; unit < split_.units.size(); ++unit) {
    if (unit == visited(split_)) {  // replicated over all ranks, whatever the mesh
      home.sharding = replicated_sharding(world.size());
      home.axis_communicators[replica_axis] = &everyone_;
      home.axis_communicators[shard_axis] = nullptr;
    }
    units_.push_back(std::make_unique<Unit>(split_.units[unit], static_cast<int>(unit), home));
  }
  gather(order_.restart());
}

void Engine::plan_memory(const QueueKind& queues) {
  const Lifetimes lives = lifetimes(order_.declared(), rules(sharding_, options_));
  const std::vector<std::size_t>& padded = order_.declared().elements;
  const std::size_t dtype = size_of(options_.parameter_dtype);
  const auto bytes = [&](std::size_t per_element, int divisor) {
    std::vector<std::size_t> result;
    for (const std::size_t elements : padded) {
      result.push_back(elements / static_cast<std::size_t>(divisor) * per_element);
    }
    return result;
  };
  const bool narrows = rules(sharding_, options_).narrowed;
  const auto make = [&](std::optional<Arena>& arena, const Overlaps& overlaps,
                        const std::vector<std::size_t>& sizes) {
    SlotPlan plan = plan_slots(overlaps, sizes);
    if (&arena == &arenas_.narrowed && narrows && split_.persists) {
      plan.append(lay_out(split_.units.back(), 1).padded * size_of(options_.gradient_wire));
    }
    arena.emplace(plan, queues.poisons_slots);
    return plan.total();
  };
  memory_plan_.parameter_slots = make(arenas_.parameters, lives.parameters,
                                      bytes(gathers_parameters(sharding_) ? dtype : 0, 1));
  memory_plan_.gradient_slots =
      make(arenas_.gradients, lives.gradients, bytes(sizeof(float), 1)) +
      make(arenas_.narrowed, lives.narrowed, bytes(size_of(options_.gradient_wire), 1)) +
      make(arenas_.sums, lives.sums, bytes(sizeof(float), sharding_.shards));
  for (std::size_t unit = 0; unit < split_.units.size(); ++unit) {
    const bool persists = unit == visited(split_);
    const Sharding& sharding = persists ? replicated_sharding(sharding_.ranks()) : sharding_;
    const std::size_t elements = persists ? lay_out(split_.units[unit], 1).padded : padded[unit];
    memory_plan_.kept +=
        kept_bytes(sharding, elements, dtype, static_cast<int>(kind_.states.size())).total();
  }
}

void Engine::check_unit(int unit) const {
  require(unit >= 0 && unit < static_cast<int>(visited(split_)), "there is no unit ", unit,
          "; units are 0 to ", visited(split_) - 1);
}

void Engine::gather(const std::vector<int>& units) {
  for (const int unit : units) {
    units_[static_cast<std::size_t>(unit)]->start_gather();
  }
}

void Engine::acquire(int unit) {
  const VisitActions actions = order_.acquire(unit);
  for (const int unused : actions.drop) {
    units_[static_cast<std::size_t>(unused)]->drop();
  }
  gather(actions.gather);
  if (shard_tier_) {
    for (const int soon : order_.upcoming()) {
      units_[static_cast<std::size_t>(soon)]->fetch_shard();
    }
  }
  advance_reductions();
  units_[static_cast<std::size_t>(unit)]->finish_gather();
}

void Engine::release(int unit) {
  if (order_.release(unit)) {
    units_[static_cast<std::size_t>(unit)]->drop();
  }
}

ConstElements Engine::parameter(int unit, int index) const {
  check_unit(unit);
  require(order_.acquired(unit), "parameter(", unit, ", ", index, ") of unit \"",
          split_.units[static_cast<std::size_t>(unit)].name,
          "\", which is not acquired; acquire() it first");
  const auto& places = split_.places[static_cast<std::size_t>(unit)];
  require(index >= 0 && index < static_cast<int>(places.size()), "unit \"",
          split_.units[static_cast<std::size_t>(unit)].name, "\" has no parameter ", index,
          "; it has ", places.size());
  const PersistentSplit::Place place = places[static_cast<std::size_t>(index)];
  return units_[static_cast<std::size_t>(place.unit)]->parameter(place.index);
}

GradientTarget Engine::gradient_target(int unit, int index) {
  check_unit(unit);
  const auto at = static_cast<std::size_t>(unit);
  const auto& places = split_.places[at];
  require(index >= 0 && index < static_cast<int>(places.size()), "unit \"", split_.units[at].name,
          "\" has no parameter ", index, "; it has ", places.size());
  require(reduced_[at] < options_.micro_steps, "gradient() of unit \"", split_.units[at].name,
          "\" after its reduce(); its next gradient belongs to the next step");
  finish_first_sums(reductions_.end_through(unit));
  const PersistentSplit::Place place = places[static_cast<std::size_t>(index)];
  return units_[static_cast<std::size_t>(place.unit)]->gradient_target(place.index);
}

void Engine::reduce(int unit) {
  check_unit(unit);
  const auto at = static_cast<std::size_t>(unit);
  require(reduced_[at] < options_.micro_steps, "reduce() of unit \"", split_.units[at].name,
          "\" came ", reduced_[at] + 1, " times before step(); micro_steps is ",
          options_.micro_steps);
  finish_first_sums(reductions_.end_through(unit));  // of the micro-step before
  ++reduced_[at];
  if (reduced_[at] < options_.micro_steps && !rules(sharding_, options_).every_micro_step) {
    return;
  }
  finish_first_sums(reductions_.begin(unit));
  units_[at]->start_first_sum();
}

void Engine::finish_first_sums(const std::vector<int>& units) {
  for (const int unit : units) {
    const auto at = static_cast<std::size_t>(unit);
    units_[at]->finish_first_sum(reduced_[at] == options_.micro_steps);
  }
}

/// Sums over replicas need not wait for the next reduce(). They begin in the same order on every
/// rank, if not at the same place among gathers, which are on the other axis.
void Engine::advance_reductions() {
  for (int unit = reductions_.oldest();
       unit >= 0 && units_[static_cast<std::size_t>(unit)]->first_sum_done();
       unit = reductions_.oldest()) {
    finish_first_sums(reductions_.end_through(unit));
  }
}

void Engine::finish_reductions() {
  if (split_.persists) {
    units_.back()->start_first_sum();
  }
  finish_first_sums(reductions_.end_all());
  if (split_.persists) {
    units_.back()->finish_first_sum(true);
  }
  for (const auto& unit : units_) {
    unit->finish_sums();
  }
}

/// Window by window, so that no rank ever holds the block sums of the whole model; added to one
/// total in one order, whatever the windows are.
double Engine::gradient_norm() {
  const std::size_t sharded = visited(split_);
  std::vector<std::size_t> blocks;
  for (const auto& unit : units_) {
    blocks.push_back(unit->blocks());
  }
  const auto parts = static_cast<std::size_t>(optimizer_part(sharding_, 0).parts);
  double total = 0;
  std::size_t first = 0;
  for (const std::size_t end :
       norm_windows(std::span(blocks).first(sharded), norm_window_blocks / parts)) {
    const auto window = std::span(blocks).subspan(first, end - first);
    total = sum_in_block_order(gather_parts(square_sums(first, window)), window,
                               static_cast<int>(parts), total);
    first = end;
  }
  if (sharded < units_.size()) {  // persistent parameters, which every rank has whole
    for (const double one : square_sums(sharded, std::span(blocks).subspan(sharded))) {
      total += one;
    }
  }
  return std::sqrt(total);
}

/// Of this rank's parts of units from `first` on, unit after unit.
std::vector<double> Engine::square_sums(std::size_t first, std::span<const std::size_t> blocks) {
  std::vector<double> sums(std::accumulate(blocks.begin(), blocks.end(), std::size_t{0}));
  std::size_t offset = 0;
  for (std::size_t at = 0; at < blocks.size(); ++at) {
    if (first + at + 1 < units_.size()) {
      units_[first + at + 1]->fetch_gradient();
    }
    units_[first + at]->sum_squares(std::span(sums).subspan(offset, blocks[at]));
    offset += blocks[at];
  }
  return sums;
}

/// Over the axes along which ranks update different parts, innermost cut first. The others hold
/// the same and would be counted again.
std::vector<double> Engine::gather_parts(std::vector<double> sums) {
  for (const Axis axis : {replica_axis, shard_axis}) {
    AxisCommunicator& axis_communicator = axis == replica_axis ? replicas_ : shards_;
    if (axis_communicator.size() > 1 && !sums.empty() &&
        sharding_.strategy->optimizer[axis] == Placement::flat) {
      std::vector<double> all(sums.size() * static_cast<std::size_t>(axis_communicator.size()));
      axis_communicator.all_gather(elements(std::as_const(sums)), elements(all), traffic_.norm)
          .wait();
      sums = std::move(all);
    }
  }
  return sums;
}

void Engine::update(float learning_rate, double scale) {
  ++steps_;
  optimizer_->begin_step(steps_, learning_rate, scale);
  // What comes first in the next step is made whole while the rest is updated.
  const std::vector<int> first = order_.restart();
  std::vector<std::size_t> units(first.begin(), first.end());
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (std::ranges::find(first, static_cast<int>(unit)) == first.end()) {
      units.push_back(unit);
    }
  }
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (i + 1 < units.size()) {
      units_[units[i + 1]]->fetch_state();
    }
    units_[units[i]]->update(*optimizer_, steps_);
    if (i < first.size()) {
      units_[units[i]]->start_gather();
    }
  }
}

StepResult Engine::step(float learning_rate, double divisor) {
  require(order_.between_passes(), "step() in the middle of a pass: next comes ", order_.expected(),
          ", and every acquire() has its release() before");
  require(divisor >= 0, "step() with a divisor of ", divisor, "; it is above 0, or 0");
  for (std::size_t unit = 0; unit < reduced_.size(); ++unit) {
    require(reduced_[unit] == options_.micro_steps, "step() before reduce() of unit \"",
            split_.units[unit].name, "\", which came ", reduced_[unit], " of ",
            options_.micro_steps, " times");
  }
  finish_reductions();
  for (const auto& unit : units_) {
    unit->drop();  // also ends gathers that still read what is updated
  }
  if (divisor == 0) {
    divisor = static_cast<double>(mesh_.world().size()) * options_.micro_steps;
  }
  const double inverse = 1 / (divisor * scaler_.scale());
  StepResult result{.grad_norm = gradient_norm() * inverse, .loss_scale = scaler_.scale()};
  result.skipped = !std::isfinite(result.grad_norm);  // the same on every rank: so is the norm
  scaler_.update(result.skipped);
  for (const auto& unit : units_) {
    unit->end_step();
  }
  std::ranges::fill(reduced_, 0);
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
  model.states.insert(model.states.end(), kind_.states.begin(), kind_.states.end());
  for (const auto& unit : units_) {
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
  const auto steps = counters.find("optimizer_steps");
  require(steps != counters.end(), "the counter \"optimizer_steps\" is missing");
  scaler_.restore(counters);
  steps_ = static_cast<std::int64_t>(steps->second);
  for (const auto& unit : units_) {
    unit->drop();
  }
  const std::vector<int> first = order_.restart();
  for (const auto& unit : units_) {
    unit->refresh(steps_);
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
    count += static_cast<std::int64_t>(unit->layout().count);
  }
  return count;
}

}  // namespace sprat::fsdp
