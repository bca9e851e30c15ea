// Gathers, reductions and updates of one unit, as its row of the placement table says.
#include "fsdp/unit.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "fsdp/clip.hpp"

namespace sprat::fsdp {
namespace {

/// For a destructor: the memory must not go before the operation ends, however it ends.
void settle(Work& work, const std::string& unit) noexcept {
  try {
    work.wait();
  } catch (const std::exception& error) {
    log().debug("unit \"{}\" was given up: {}", unit, error.what());
  }
}

Elements floats(const Memory& memory, std::size_t count) {
  return {.data = memory.data(), .count = count, .dtype = DType::f32};
}

}  // namespace

Unit::Unit(const UnitSpec& spec, const UnitHome& home)
    : name_(spec.name),
      home_(home),
      sharded_parameters_(home.strategy.parameters[1] == Placement::flat),
      sharded_gradients_(home.strategy.gradients[1] == Placement::flat),
      layout_(lay_out(spec, home.shards.size())),
      shard_(shard_layout(layout_, home.shards.size(), home.shards.rank())),
      parameters_(allocate<float>(shard_.count)),
      gradients_(allocate<float>(shard_.count)),
      first_moments_(shard_.count),
      second_moments_(shard_.count) {
  fill(spec);
}

Unit::~Unit() {
  settle(gather_, name_);
  settle(shard_reduction_, name_);
  settle(replica_reduction_, name_);
}

const FlatItem& Unit::item(int index) const {
  require(index >= 0 && index < static_cast<int>(layout_.items.size()), "unit \"", name_,
          "\" has no parameter ", index, "; it has ", layout_.items.size());
  return layout_.items[index];
}

std::size_t Unit::kept_bytes() const {
  return (parameters_.bytes() + gradients_.bytes()) +
         (first_moments_.size() + second_moments_.size()) * sizeof(float);
}

void Unit::fill(const UnitSpec& spec) {
  const std::span<float> values = parameters_.as<float>();
  for (const ShardPiece& piece : shard_.pieces) {
    const ParameterSpec& parameter = spec.parameters[piece.parameter];
    if (!parameter.initial) {
      continue;  // zero
    }
    for (std::size_t i = 0; i < piece.count; ++i) {
      values[piece.shard_offset + i] = parameter.initial(piece.parameter_offset + i);
    }
  }
}

void Unit::start_gather() {
  if (!sharded_parameters_) {
    return;
  }
  full_parameters_ = home_.pool.take(layout_.padded * sizeof(float));
  gather_ = home_.shards.all_gather(floats(parameters_, shard_.count),
                                    floats(full_parameters_, layout_.padded));
}

void Unit::finish_gather() { std::exchange(gather_, {}).wait(); }

void Unit::drop() {
  finish_gather();
  if (full_parameters_.data() != nullptr) {
    home_.pool.give(std::exchange(full_parameters_, {}));
  }
}

std::span<const float> Unit::parameter(int index) const {
  const FlatItem& which = item(index);
  const Memory& full = sharded_parameters_ ? full_parameters_ : parameters_;
  return full.as<const float>().subspan(which.offset, which.count);
}

std::span<float> Unit::full_gradient() {
  if (state_ == GradientState::untouched) {
    if (sharded_gradients_) {
      full_gradients_ = home_.pool.take(layout_.padded * sizeof(float));
    }
    state_ = GradientState::adding;
    // The padding is zeroed too: it is reduced and counted in the norm.
    std::ranges::fill(full_gradient(), 0.0f);
  }
  const Memory& full = sharded_gradients_ ? full_gradients_ : gradients_;
  return full.as<float>().first(layout_.padded);
}

std::span<float> Unit::gradient(int index) {
  const FlatItem& which = item(index);
  require(!reduction_started(), "gradient() of unit \"", name_,
          "\" after its reduce(); its next gradient belongs to the next step");
  return full_gradient().subspan(which.offset, which.count);
}

void Unit::start_reduction() {
  require(!reduction_started(), "reduce() of unit \"", name_, "\" a second time before step()");
  const std::span<float> whole = full_gradient();
  state_ = GradientState::summing_shards;
  if (sharded_gradients_) {
    shard_reduction_ =
        home_.shards.reduce_scatter(elements(whole), floats(gradients_, shard_.count));
  }
}

void Unit::start_replica_reduction() {
  std::exchange(shard_reduction_, {}).wait();
  if (full_gradients_.data() != nullptr) {
    home_.pool.give(std::exchange(full_gradients_, {}));
  }
  state_ = GradientState::summing_replicas;
  if (home_.strategy.gradients[0] == Placement::partial) {
    replica_reduction_ = home_.replicas.all_reduce(floats(gradients_, shard_.count));
  }
}

void Unit::finish_reduction() {
  std::exchange(replica_reduction_, {}).wait();
  state_ = GradientState::reduced;
}

void Unit::sum_squares(std::span<double> sums) const {
  block_sums_of_squares(gradients_.as<const float>().first(shard_.count), sums);
}

void Unit::update(const AdamWStep& step) {
  for (const DecayRange& range : shard_.ranges) {
    const auto part = [&](auto&& values) {
      return std::span(values).subspan(range.offset, range.count);
    };
    fsdp::update(step, range.decay,
                 {.parameters = part(parameters_.as<float>()),
                  .first_moments = part(first_moments_),
                  .second_moments = part(second_moments_),
                  .gradients = part(gradients_.as<const float>())});
  }
}

}  // namespace sprat::fsdp
