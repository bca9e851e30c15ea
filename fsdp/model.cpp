// The sharded model's public face: the engine does the work.
#include <algorithm>
#include <utility>

#include "comm/base/check.hpp"
#include "fsdp/engine.hpp"
#include "fsdp/rounding.hpp"
#include "sprat/fsdp.hpp"

namespace sprat {

ShardedModel::ShardedModel(Communicator& world, std::vector<UnitSpec> units, FsdpOptions options)
    : engine_(std::make_unique<fsdp::Engine>(world, std::move(units), std::move(options))) {}
ShardedModel::~ShardedModel() = default;
ShardedModel::ShardedModel(ShardedModel&&) noexcept = default;

void ShardedModel::acquire(int unit) { engine_->acquire(unit); }
void ShardedModel::release(int unit) { engine_->release(unit); }

bool ShardedModel::has_values(int unit) const { return engine_->has_values(unit); }

ConstElements ShardedModel::parameter_elements(int unit, int index) const {
  return engine_->parameter(unit, index);
}

std::span<const float> ShardedModel::parameter(int unit, int index) const {
  const ConstElements values = engine_->parameter(unit, index);
  require(values.dtype == DType::f32, "parameter() of a model whose parameters are ",
          name(values.dtype), "; see parameter_elements()");
  return {static_cast<const float*>(values.data), values.count};
}

GradientTarget ShardedModel::gradient_target(int unit, int index, std::optional<int> microbatch) {
  return engine_->gradient_target(unit, index, microbatch);
}

std::span<float> ShardedModel::gradient(int unit, int index, std::optional<int> microbatch) {
  const GradientTarget target = engine_->gradient_target(unit, index, microbatch);
  if (target.fresh) {
    std::ranges::fill(target.values, 0.0f);
  }
  return target.values;
}

void ShardedModel::reduce(int unit, std::optional<int> microbatch) {
  engine_->reduce(unit, microbatch);
}
double ShardedModel::loss_scale() const noexcept { return engine_->scaler().scale(); }
StepResult ShardedModel::step(float learning_rate, double divisor) {
  return engine_->step(learning_rate, divisor);
}
void ShardedModel::finish_gradients() { engine_->finish_gradients(); }
std::span<float> ShardedModel::summed_gradient(int unit) { return engine_->summed_gradient(unit); }
std::vector<SquareSum> ShardedModel::square_sums() { return engine_->square_sums(); }
StepResult ShardedModel::apply(float learning_rate, double grad_norm, double divisor) {
  return engine_->apply(learning_rate, grad_norm, divisor);
}

void ShardedModel::sum_over_ranks(std::span<double> values) { engine_->sum_over_ranks(values); }

std::int64_t ShardedModel::updates() const noexcept { return engine_->updates(); }
std::int64_t ShardedModel::parameter_count() const { return engine_->parameter_count(); }
const Strategy& ShardedModel::strategy() const noexcept { return *engine_->sharding().strategy; }
int ShardedModel::hybrid_shard_degree() const noexcept { return engine_->sharding().shards; }
const MemoryPlan& ShardedModel::memory_plan() const noexcept { return engine_->memory_plan(); }
std::size_t ShardedModel::bytes_held() const { return engine_->bytes_held(); }
std::size_t ShardedModel::bytes_high_water() const { return engine_->bytes_high_water(); }
const Traffic& ShardedModel::traffic() const noexcept { return engine_->traffic(); }

void widen(const ConstElements& from, std::span<float> to) {
  require(from.count == to.size(), "widen() of ", from.count, " elements to ", to.size());
  fsdp::widen(from.dtype, from.data, to);
}

}  // namespace sprat
