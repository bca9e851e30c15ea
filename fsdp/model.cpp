// The sharded model: units on a mesh of replicas and shards, driven by the gather order.
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "comm/base/check.hpp"
#include "fsdp/clip.hpp"
#include "fsdp/optimizers/adamw.hpp"
#include "fsdp/order.hpp"
#include "fsdp/placement.hpp"
#include "fsdp/pool.hpp"
#include "fsdp/unit.hpp"
#include "sprat/fsdp.hpp"
#include "sprat/mesh.hpp"

namespace sprat {
namespace {

using fsdp::Unit;

FsdpOptions checked(FsdpOptions options) {
  const AdamWOptions& adamw = options.adamw;
  const auto is_beta = [](float beta) { return beta >= 0 && beta < 1; };
  require(is_beta(adamw.beta1) && is_beta(adamw.beta2), "AdamW betas ", adamw.beta1, " and ",
          adamw.beta2, " are not in [0, 1)");
  require(adamw.epsilon > 0, "AdamW epsilon ", adamw.epsilon, " is not above 0");
  require(adamw.weight_decay >= 0, "AdamW weight decay ", adamw.weight_decay, " is below 0");
  require(options.clip_norm >= 0, "clip_norm ", options.clip_norm, " is below 0");
  return options;
}

std::vector<MeshAxis> axes(int ranks, int degree) {
  fsdp::strategy_for(ranks, degree);  // throws if the degree does not divide
  return {{"replica", ranks / degree}, {"shard", degree}};
}

std::vector<std::string> names(const std::vector<UnitSpec>& units) {
  std::vector<std::string> result;
  std::set<std::string> seen;
  for (const UnitSpec& unit : units) {
    require(seen.insert(unit.name).second, "two units are named \"", unit.name, "\"");
    std::set<std::string> parameters;
    for (const ParameterSpec& parameter : unit.parameters) {
      require(parameters.insert(parameter.name).second, "unit \"", unit.name,
              "\" has two parameters named \"", parameter.name, "\"");
    }
    result.push_back(unit.name);
  }
  return result;
}

}  // namespace

struct ShardedModel::Impl {
  Impl(Communicator& world, const std::vector<UnitSpec>& specs, FsdpOptions given)
      : options(checked(std::move(given))),
        order({.units = names(specs),
               .forward = options.forward,
               .backward = options.backward,
               .ahead = options.prefetch_units}),
        strategy(fsdp::strategy_for(world.size(), options.hybrid_shard_degree)),
        mesh(world, axes(world.size(), options.hybrid_shard_degree)),
        schedule(options.adamw) {
    const fsdp::UnitHome home{
        .strategy = strategy, .replicas = mesh["replica"], .shards = mesh["shard"], .pool = pool};
    for (const UnitSpec& spec : specs) {
      units.push_back(std::make_unique<Unit>(spec, home));
      blocks.push_back(units.back()->blocks());
    }
    gather(order.restart());
  }

  Unit& at(int unit) const {
    require(unit >= 0 && unit < static_cast<int>(units.size()), "there is no unit ", unit,
            "; units are 0 to ", units.size() - 1);
    return *units[unit];
  }

  void gather(const std::vector<int>& which) {
    for (const int unit : which) {
      units[unit]->start_gather();
    }
  }

  void reduce(Unit& unit);
  void finish_reductions();
  double gradient_norm();

  FsdpOptions options;
  fsdp::GatherOrder order;
  const Strategy& strategy;
  Mesh mesh;
  fsdp::BufferPool pool;
  std::vector<std::unique_ptr<Unit>> units;
  std::vector<std::size_t> blocks;  // of this rank's shard, by unit
  fsdp::AdamWSchedule schedule;
  Unit* reducing = nullptr;  // whose sum over shards is under way
};

void ShardedModel::Impl::reduce(Unit& unit) {
  // One sum over shards at a time bounds the full gradients that are alive.
  if (Unit* previous = std::exchange(reducing, nullptr)) {
    previous->start_replica_reduction();
  }
  unit.start_reduction();
  reducing = &unit;
}

void ShardedModel::Impl::finish_reductions() {
  if (Unit* previous = std::exchange(reducing, nullptr)) {
    previous->start_replica_reduction();
  }
  for (const auto& unit : units) {
    unit->finish_reduction();
  }
}

double ShardedModel::Impl::gradient_norm() {
  std::size_t count = 0;
  for (const std::size_t one : blocks) {
    count += one;
  }
  Communicator& shards = mesh["shard"];
  std::vector<double> mine(count);
  std::size_t offset = 0;
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    units[unit]->sum_squares(std::span(mine).subspan(offset, blocks[unit]));
    offset += blocks[unit];
  }
  // Not over replicas: they hold the same shards, and would be counted again.
  std::vector<double> all(count * static_cast<std::size_t>(shards.size()));
  shards.all_gather(elements(std::as_const(mine)), elements(all), {.timeout = {}, .blocking = true})
      .wait();
  const double sum = fsdp::sum_in_block_order(all, blocks, shards.size());
  return std::sqrt(sum) / mesh.world().size();
}

ShardedModel::ShardedModel(Communicator& world, std::vector<UnitSpec> units, FsdpOptions options)
    : impl_(std::make_unique<Impl>(world, units, std::move(options))) {}
ShardedModel::~ShardedModel() = default;
ShardedModel::ShardedModel(ShardedModel&&) noexcept = default;

void ShardedModel::acquire(int unit) {
  const fsdp::VisitActions actions = impl_->order.acquire(unit);
  for (const int unused : actions.drop) {
    impl_->units[unused]->drop();
  }
  impl_->gather(actions.gather);
  impl_->units[unit]->finish_gather();
}

void ShardedModel::release(int unit) {
  if (impl_->order.release(unit)) {
    impl_->units[unit]->drop();
  }
}

std::span<const float> ShardedModel::parameter(int unit, int index) const {
  const Unit& one = impl_->at(unit);
  require(impl_->order.acquired(unit), "parameter(", unit, ", ", index, ") of unit \"", one.name(),
          "\", which is not acquired; acquire() it first");
  return one.parameter(index);
}

std::span<float> ShardedModel::gradient(int unit, int index) {
  return impl_->at(unit).gradient(index);
}

void ShardedModel::reduce(int unit) { impl_->reduce(impl_->at(unit)); }

StepResult ShardedModel::step(float learning_rate) {
  Impl& model = *impl_;
  require(model.order.between_passes(), "step() in the middle of a pass: next comes ",
          model.order.expected(), ", and every acquire() has its release() before");
  for (const auto& unit : model.units) {
    require(unit->reduction_started(), "step() before reduce() of unit \"", unit->name(), "\"");
  }
  model.finish_reductions();
  for (const auto& unit : model.units) {
    unit->drop();  // also ends gathers that still read the shard
  }
  StepResult result{.grad_norm = model.gradient_norm()};
  result.skipped = !std::isfinite(result.grad_norm);  // the same on every rank: so is the norm
  if (!result.skipped) {
    const double scale =
        fsdp::clip_factor(result.grad_norm, model.options.clip_norm) / model.mesh.world().size();
    const fsdp::AdamWStep update = model.schedule.next(learning_rate, scale);
    for (const auto& unit : model.units) {
      unit->update(update);
    }
  }
  for (const auto& unit : model.units) {
    unit->end_step();
  }
  model.gather(model.order.restart());
  return result;
}

std::int64_t ShardedModel::parameter_count() const {
  std::int64_t count = 0;
  for (const auto& unit : impl_->units) {
    count += static_cast<std::int64_t>(unit->layout().count);
  }
  return count;
}

const Strategy& ShardedModel::strategy() const noexcept { return impl_->strategy; }

std::size_t ShardedModel::bytes_held() const {
  std::size_t bytes = impl_->pool.held();
  for (const auto& unit : impl_->units) {
    bytes += unit->kept_bytes();
  }
  return bytes;
}

std::size_t ShardedModel::bytes_high_water() const {
  return bytes_held() - impl_->pool.held() + impl_->pool.high_water();
}

}  // namespace sprat
