// Gathers, sums and updates of one unit, as its row of the placement table says.
#include "fsdp/unit.hpp"

#include <algorithm>
#include <utility>

#include "comm/base/check.hpp"
#include "fsdp/clip.hpp"
#include "fsdp/rounding.hpp"

namespace sprat::fsdp {
namespace {

std::size_t divided(std::size_t elements, int parts) {
  return elements / static_cast<std::size_t>(parts);
}

Elements floats(std::span<float> values) {
  return {.data = values.data(), .count = values.size(), .dtype = DType::f32};
}

/// `count` elements of an array from `offset` on.
Elements part_of(void* data, std::size_t offset, std::size_t count, DType dtype) {
  return {.data = static_cast<std::byte*>(data) + offset * size_of(dtype),
          .count = count,
          .dtype = dtype};
}

std::span<float> as_floats(std::span<std::byte> bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

std::span<std::byte> bytes_of(std::span<float> values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size_bytes()};
}

/// Brings near, or lets go of, what a tier keeps; null is memory, which is near.
void fetch(io::Tier* tier, std::span<std::byte> array) {
  if (tier != nullptr) {
    tier->fetch(array);
  }
}
void release(io::Tier* tier, std::span<std::byte> array) {
  if (tier != nullptr) {
    tier->release(array);
  }
}

void add(std::span<const float> values, std::span<float> onto) {
  for (std::size_t i = 0; i < onto.size(); ++i) {
    onto[i] += values[i];
  }
}

}  // namespace

Unit::Unit(const UnitSpec& spec, int id, const UnitHome& home)
    : spec_(&spec),
      id_(id),
      home_(home),
      gathers_(gathers_parameters(home.sharding)),
      shards_gradients_(fsdp::shards_gradients(home.sharding)),
      hops_(reduction_hops(home.sharding)),
      part_(optimizer_part(home.sharding, home.rank)),
      layout_(lay_out(spec, part_.parts)),
      own_(shard_layout(layout_, part_.parts, part_.part)),
      parameter_tier_(gathers_ ? home.shard_tier : nullptr),
      gradient_tier_(shards_gradients_ ? home.shard_tier : nullptr),
      fresh_(spec.parameters.size(), true) {
  const int shards = home.sharding.shards;
  shard_ = divided(layout_.padded, shards) * static_cast<std::size_t>(home.rank % shards);
  const std::size_t dtype = size_of(home.options.parameter_dtype);
  const std::size_t own_bytes = own_.count * sizeof(float);
  parameters_ = keep(divided(layout_.padded, gathers_ ? shards : 1) * dtype, parameter_tier_);
  gradients_ = as_floats(keep(
      divided(layout_.padded, shards_gradients_ ? shards : 1) * sizeof(float), gradient_tier_));
  if (home.options.parameter_dtype != DType::f32) {
    masters_ = as_floats(home.state_tier->allocate(own_bytes));
  }
  for (int state = 0; state < home.states; ++state) {
    states_.push_back(as_floats(home.state_tier->allocate(own_bytes)));
  }
  fill();
  release_state();
}

std::span<std::byte> Unit::keep(std::size_t bytes, io::Tier* tier) {
  if (tier != nullptr) {
    return tier->allocate(bytes);
  }
  return memories_.emplace_back(bytes).as<std::byte>();
}

const FlatItem& Unit::item(int index) const {
  require(index >= 0 && index < static_cast<int>(layout_.items.size()), "unit \"", name(),
          "\" has no parameter ", index, "; it has ", layout_.items.size());
  return layout_.items[static_cast<std::size_t>(index)];
}

std::size_t Unit::kept_bytes() const {
  return parameters_.size() + gradients_.size_bytes() +
         (masters_.size() + states_.size() * own_.count) * sizeof(float);
}

/// Kept parameters by flat offset.
Elements Unit::kept(std::size_t offset, std::size_t count) {
  return part_of(parameters_.data(), offset - (gathers_ ? shard_ : 0), count,
                 home_.options.parameter_dtype);
}

/// State 0 is the f32 parameters, the rest the optimizer's.
std::span<float> Unit::values(std::size_t state) {
  if (state > 0) {
    return states_[state - 1];
  }
  if (!masters_.empty() || own_.count == 0) {
    return masters_;
  }
  return {static_cast<float*>(kept(own_.offset, own_.count).data), own_.count};
}

StoredUnit Unit::held() {
  finish_gather();
  StoredUnit held{.spec = spec_,
                  .layout = layout_,
                  .parts = part_.parts,
                  .part = part_.part,
                  .copies = part_.copies,
                  .copy = part_.copy,
                  .holders = std::vector<int>(static_cast<std::size_t>(home_.sharding.ranks())),
                  .values = {}};
  for (int rank = 0; rank < home_.sharding.ranks(); ++rank) {
    const OptimizerPart its = optimizer_part(home_.sharding, rank);
    held.holders[static_cast<std::size_t>(its.copy * its.parts + its.part)] = rank;
  }
  for (std::size_t state = 0; state <= states_.size(); ++state) {
    held.values.push_back(values(state));
  }
  return held;
}

void Unit::fill() {
  // All that is kept is filled, not only the own part: nothing needs to be sent.
  const auto fill_part = [&](const ShardLayout& part, std::span<float> into) {
    for (const ShardPiece& piece : part.pieces) {
      const auto& initial = spec_->parameters[static_cast<std::size_t>(piece.parameter)].initial;
      for (std::size_t i = 0; initial && i < piece.count; ++i) {
        into[piece.shard_offset + i] = initial(piece.parameter_offset + i);
      }
    }
  };
  const int shards = gathers_ ? home_.sharding.shards : 1;
  const ShardLayout all = shard_layout(layout_, shards, gathers_ ? home_.rank % shards : 0);
  if (masters_.empty()) {
    fill_part(all, as_floats(parameters_).first(all.count));
    return;
  }
  fill_part(own_, masters_);
  // Piece by piece, so that no more than one part is ever there in f32.
  const int pieces = std::max(1, part_.parts / shards);
  std::vector<float> piece(divided(all.count, pieces));
  for (int index = 0; index < pieces; ++index) {
    const ShardLayout one = shard_layout(layout_, shards * pieces,
                                         (gathers_ ? home_.rank % shards : 0) * pieces + index);
    std::ranges::fill(piece, 0.0f);
    fill_part(one, piece);
    narrow(home_.options.parameter_dtype, piece, kept(one.offset, one.count).data);
  }
}

void Unit::fetch_shard() { fetch(parameter_tier_, parameters_); }

void Unit::start_gather() {
  if (!gathers_ || layout_.padded == 0) {
    return;
  }
  refresh_.wait();
  full_parameters_ = home_.parameter_slots->take(id_);
  const DType dtype = home_.options.parameter_dtype;
  gather_ = home_.axis_communicators[shard_axis]->all_gather(
      kept(shard_, divided(layout_.padded, home_.sharding.shards)),
      part_of(full_parameters_.data(), 0, layout_.padded, dtype), home_.traffic.parameters);
  reads_shard_ = true;
}

void Unit::finish_gather() {
  refresh_.wait();
  gather_.wait();
  if (std::exchange(reads_shard_, false)) {
    release(parameter_tier_, parameters_);
  }
}

void Unit::drop() {
  finish_gather();
  full_parameters_ = {};
}

ConstElements Unit::parameter(int index) const {
  const FlatItem& which = item(index);
  void* const full = gathers_ ? full_parameters_.data() : parameters_.data();
  return part_of(full, which.offset, which.count, home_.options.parameter_dtype);
}

std::span<float> Unit::full_gradient() {
  return shards_gradients_ ? std::span(static_cast<float*>(full_gradients_.data()), layout_.padded)
                           : gradients_;
}

void Unit::begin_gradient() {
  if (std::exchange(making_, true)) {
    return;
  }
  fresh_.assign(fresh_.size(), true);
  if (layout_.padded == 0) {
    return;
  }
  if (shards_gradients_) {
    full_gradients_ = home_.gradient_slots->take(id_);
  }
  // What lies between parameters is summed too, and counted in the norm.
  std::size_t end = 0;
  for (const FlatItem& item : layout_.items) {
    std::ranges::fill(full_gradient().subspan(end, item.offset - end), 0.0f);
    end = item.offset + item.count;
  }
  std::ranges::fill(full_gradient().subspan(end), 0.0f);
}

GradientTarget Unit::gradient_target(int index) {
  const FlatItem& which = item(index);
  begin_gradient();
  const bool fresh = fresh_[static_cast<std::size_t>(index)];
  fresh_[static_cast<std::size_t>(index)] = false;
  return {.values = full_gradient().subspan(which.offset, which.count), .fresh = fresh};
}

/// Parameters that got no gradient have one of zero.
void Unit::complete_gradient() {
  begin_gradient();
  for (std::size_t index = 0; index < fresh_.size(); ++index) {
    if (fresh_[index]) {
      std::ranges::fill(gradient_target(static_cast<int>(index)).values, 0.0f);
    }
  }
  making_ = false;
}

ConstElements Unit::kept_gradient() {
  if (home_.options.gradient_wire == DType::f32) {
    return floats(full_gradient());
  }
  narrowed_ = home_.narrowed_slots->take(id_);
  narrow(home_.options.gradient_wire, full_gradient(), narrowed_.data());
  return part_of(narrowed_.data(), 0, layout_.padded, home_.options.gradient_wire);
}

void Unit::start_first_sum() {
  complete_gradient();
  if (hops_.empty() || layout_.padded == 0) {
    return;
  }
  const Hop hop = hops_.front();
  AxisCommunicator& axis_communicator = *home_.axis_communicators[hop.axis];
  const std::size_t part = divided(layout_.padded, axis_communicator.size());
  if (shards_gradients_) {
    const DType wire = home_.options.gradient_wire;
    if (wire != DType::f32) {
      narrow(wire, full_gradient(), full_gradients_.data());
    }
    float* sum = gradients_.data();
    fetch_gradient();
    if (adds_) {
      sum_ = home_.sum_slots->take(id_);
      sum = static_cast<float*>(sum_.data());
    }
    first_sum_ =
        axis_communicator.reduce_scatter(part_of(full_gradients_.data(), 0, layout_.padded, wire),
                                         floats({sum, part}), home_.traffic.gradients);
  } else if (hop.scatters) {
    const std::size_t offset = part * static_cast<std::size_t>(axis_communicator.rank());
    first_sum_ = axis_communicator.reduce_scatter(
        kept_gradient(), floats(full_gradient().subspan(offset, part)), home_.traffic.gradients);
  } else {
    first_sum_ = axis_communicator.all_reduce(kept_gradient(), floats(full_gradient()),
                                              home_.traffic.gradients);
  }
}

void Unit::finish_first_sum(bool last) {
  first_sum_.wait();
  full_gradients_ = {};
  narrowed_ = {};
  if (sum_) {
    add({static_cast<const float*>(sum_.data()), gradients_.size()}, gradients_);
    sum_ = {};
  }
  adds_ = shards_gradients_;
  if (!last || hops_.size() < 2 || layout_.padded == 0) {
    release_gradient();
    return;
  }
  const Hop hop = hops_[1];  // over replicas, of this rank's shard
  AxisCommunicator& axis_communicator = *home_.axis_communicators[hop.axis];
  const std::size_t count = divided(layout_.padded, home_.sharding.shards);
  const std::span<float> shard = gradients_.subspan(shards_gradients_ ? 0 : shard_, count);
  if (hop.scatters) {
    second_sum_ = axis_communicator.reduce_scatter(floats(shard), floats(own_gradient()),
                                                   home_.traffic.gradients);
  } else {
    second_sum_ =
        axis_communicator.all_reduce(floats(shard), floats(shard), home_.traffic.gradients);
  }
}

void Unit::finish_sums() {
  second_sum_.wait();
  if (hops_.size() > 1) {
    release_gradient();  // others went at the end of their only sum
  }
}

std::span<float> Unit::own_gradient() const {
  return gradients_.subspan(own_.offset - (shards_gradients_ ? shard_ : 0), own_.count);
}

void Unit::fetch_gradient() { fetch(gradient_tier_, bytes_of(gradients_)); }

void Unit::release_gradient() { release(gradient_tier_, bytes_of(gradients_)); }

void Unit::sum_squares(std::span<double> sums) {
  block_sums_of_squares(own_gradient(), sums);
  release_gradient();
}

void Unit::fetch_state() {
  fetch_shard();
  fetch_gradient();
  fetch(home_.state_tier, bytes_of(masters_));
  for (const std::span<float> state : states_) {
    fetch(home_.state_tier, bytes_of(state));
  }
}

void Unit::release_state() {
  release(parameter_tier_, parameters_);
  release_gradient();
  release(home_.state_tier, bytes_of(masters_));
  for (const std::span<float> state : states_) {
    release(home_.state_tier, bytes_of(state));
  }
}

void Unit::update(const Optimizer& optimizer, std::int64_t step) {
  finish_gather();
  std::vector<std::span<float>> states(states_.size());
  for (const DecayRange& range : own_.ranges) {
    const auto part = [&](auto values) { return values.subspan(range.offset, range.count); };
    for (std::size_t state = 0; state < states.size(); ++state) {
      states[state] = part(values(state + 1));
    }
    optimizer.update(
        range.decay,
        {.parameters = part(values(0)), .gradients = part(own_gradient()), .states = states});
  }
  refresh(step);
  release_state();
}

void Unit::refresh(std::int64_t step) {
  if (layout_.padded == 0) {
    return;
  }
  finish_gather();
  if (!masters_.empty()) {
    const DType dtype = home_.options.parameter_dtype;
    void* const own = kept(own_.offset, own_.count).data;
    if (home_.options.stochastic_rounding && step > 0) {
      narrow_stochastically(dtype, masters_, own,
                            {.seed = home_.options.seed,
                             .step = step,
                             .unit = static_cast<std::uint32_t>(id_),
                             .first = own_.offset});
    } else {
      narrow(dtype, masters_, own);
    }
  }
  std::size_t offset = own_.offset, count = own_.count;
  for (const Axis axis : refresh_axes(home_.sharding)) {
    refresh_.wait();
    AxisCommunicator& axis_communicator = *home_.axis_communicators[axis];
    const Elements part = kept(offset, count);
    offset -= count * static_cast<std::size_t>(axis_communicator.rank());
    count *= static_cast<std::size_t>(axis_communicator.size());
    refresh_ = axis_communicator.all_gather(part, kept(offset, count), home_.traffic.parameters);
  }
}

}  // namespace sprat::fsdp
