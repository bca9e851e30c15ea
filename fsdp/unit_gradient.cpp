// Sums of a gradient, over the shard axis in each micro-step and over replicas in the last.
#include "fsdp/unit_gradient.hpp"

#include <algorithm>

#include "fsdp/rounding.hpp"
#include "sprat/wire.hpp"

namespace sprat::fsdp {
namespace {

void add_onto(std::span<const float> values, std::span<float> onto) {
  for (std::size_t i = 0; i < onto.size(); ++i) {
    onto[i] += values[i];
  }
}

}  // namespace

UnitGradient::UnitGradient(const UnitCut& cut, const UnitHome& home)
    : cut_(cut),
      home_(home),
      hops_(cut.layout.padded == 0
                ? std::vector<Hop>{}
                : reduction_hops(home.spread.sharding, home.spread.gradient_wire)),
      kept_((cut.shards_gradients ? cut.shard.count : cut.layout.padded) * sizeof(float),
            cut.shards_gradients ? home.shard_tier : nullptr),
      full_(cut, home, cut.shards_gradients ? std::span<float>() : kept_.as_floats()),
      hop_(encoded_hop(home.spread.sharding, home.spread.gradient_wire, cut.layout.padded)),
      residuals_(home.options.error_feedback ? (hop_.sent + hop_.returned) * sizeof(float) : 0,
                 home.options.error_feedback ? home.state_tier : nullptr) {
  residuals_.release();
}

std::span<float> UnitGradient::own() const {
  return kept_.as_floats().subspan(
      cut_.own.offset - (cut_.shards_gradients ? cut_.shard.offset : 0), cut_.own.count);
}

void UnitGradient::write() {
  if (!state_.is(GradientState::written)) {
    state_.move_to(GradientState::written);
  }
}

GradientTarget UnitGradient::target(int index, int microbatch) {
  write();
  return full_.target(index, microbatch);
}

void UnitGradient::finish_microbatch(int microbatch) {
  write();
  full_.finish(microbatch);
}

/// A gradient that stays full, as it is or in a narrowed copy.
ConstElements UnitGradient::whole() {
  const DType wire = hops_.front().wire;
  if (wire == DType::f32) {
    return floats(full_.sum());
  }
  narrowed_ = home_.narrowed_slots->take(cut_.id);
  narrow(wire, full_.sum(), narrowed_.data());
  return part_of(narrowed_.data(), 0, cut_.layout.padded, wire);
}

/// The full gradient is in a slot and goes after this sum, so it is narrowed where it lies. A sum
/// that is to be added to those of earlier micro-steps needs a place of its own.
void UnitGradient::start_scatter_to_shard(AxisCommunicator& axis_communicator) {
  const DType wire = hops_.front().wire;
  fetch();
  float* sum = kept_.as_floats().data();
  if (sums_ended_ > 0) {
    addend_ = home_.sum_slots->take(cut_.id);
    sum = static_cast<float*>(addend_.data());
  }
  const std::span<float> part(sum, divided(cut_.layout.padded, axis_communicator.size()));
  if (has_block_scales(wire)) {
    first_sum_ = start_encoded(hops_.front(), full_.sum(), part);
    return;
  }
  if (wire != DType::f32) {
    narrow(wire, full_.sum(), full_.sum().data());
  }
  first_sum_ =
      axis_communicator.reduce_scatter(part_of(full_.sum().data(), 0, cut_.layout.padded, wire),
                                       floats(part), home_.traffic.gradients, cut_.spec.name);
}

/// `sum` is a part of `whole`, or all of it, or in memory of its own.
Pending UnitGradient::start_encoded(const Hop& hop, std::span<float> whole, std::span<float> sum) {
  narrowed_ = home_.narrowed_slots->take(cut_.id);
  const std::span staging(static_cast<std::byte*>(narrowed_.data()), hop_.staging_bytes);
  residuals_.fetch();
  EncodedSums& sums = *home_.spread.encoded_sums;
  return hop.scatters
             ? sums.reduce_scatter(whole, sum, residuals(), staging, home_.traffic.gradients)
             : sums.all_reduce(whole, residuals(), staging, home_.traffic.gradients);
}

Residuals UnitGradient::residuals() const {
  const std::span<float> all = residuals_.as_floats();
  if (all.empty()) {
    return {};
  }
  return {.sent = all.first(hop_.sent), .returned = all.subspan(hop_.sent)};
}

void UnitGradient::start_first_sum() {
  write();
  full_.finish_all();
  state_.move_to(GradientState::first_sum);
  if (hops_.empty()) {
    return;
  }
  const Hop hop = hops_.front();
  AxisCommunicator& axis_communicator = *home_.spread.axis_communicators[hop.axis];
  if (cut_.shards_gradients) {
    start_scatter_to_shard(axis_communicator);
    return;
  }
  const std::size_t count =
      hop.scatters ? divided(cut_.layout.padded, axis_communicator.size()) : cut_.layout.padded;
  const std::size_t offset =
      hop.scatters ? count * static_cast<std::size_t>(axis_communicator.rank()) : 0;
  const std::span<float> sum = full_.sum().subspan(offset, count);
  if (has_block_scales(hop.wire)) {
    first_sum_ = start_encoded(hop, full_.sum(), sum);
  } else if (hop.scatters) {
    first_sum_ = axis_communicator.reduce_scatter(whole(), floats(sum), home_.traffic.gradients,
                                                  cut_.spec.name);
  } else {
    first_sum_ =
        axis_communicator.all_reduce(whole(), floats(sum), home_.traffic.gradients, cut_.spec.name);
  }
}

void UnitGradient::finish_first_sum(bool last) {
  first_sum_.wait();
  full_.clear();
  narrowed_ = {};
  residuals_.release();
  if (addend_) {
    add_onto({static_cast<const float*>(addend_.data()), kept_.as_floats().size()},
             kept_.as_floats());
    addend_ = {};
  }
  ++sums_ended_;
  if (last && hops_.size() > 1) {
    state_.move_to(GradientState::sum_of_replicas);
    start_second_sum();
    return;
  }
  state_.move_to(last ? GradientState::summed : GradientState::between_sums);
  release();
}

/// Over replicas, of this rank's shard.
void UnitGradient::start_second_sum() {
  const Hop hop = hops_[1];
  AxisCommunicator& axis_communicator = *home_.spread.axis_communicators[hop.axis];
  const std::span<float> shard =
      kept_.as_floats().subspan(cut_.shards_gradients ? 0 : cut_.shard.offset, cut_.shard.count);
  if (has_block_scales(hop.wire)) {
    second_sum_ = start_encoded(hop, shard, hop.scatters ? own() : shard);
  } else if (hop.scatters) {
    second_sum_ = axis_communicator.reduce_scatter(floats(shard), floats(own()),
                                                   home_.traffic.gradients, cut_.spec.name);
  } else {
    second_sum_ = axis_communicator.all_reduce(floats(shard), floats(shard),
                                               home_.traffic.gradients, cut_.spec.name);
  }
}

void UnitGradient::finish_sums() {
  if (state_.is(GradientState::sum_of_replicas)) {
    second_sum_.wait();
    narrowed_ = {};
    residuals_.release();
    state_.move_to(GradientState::summed);
    release();
  }
}

void UnitGradient::end_step() {
  state_.move_to(GradientState::none);
  sums_ended_ = 0;
}

void UnitGradient::scale_residuals(float factor) {
  residuals_.fetch();
  for (float& value : residuals_.as_floats()) {
    value = factor == 0 ? 0 : value * factor;  // even what a larger scale made infinite
  }
  residuals_.release();
}

}  // namespace sprat::fsdp
