// Sums of a gradient, over the shard axis in each micro-step and over replicas in the last.
#include "fsdp/unit_gradient.hpp"

#include <algorithm>

#include "fsdp/rounding.hpp"

namespace sprat::fsdp {
namespace {

void add(std::span<const float> values, std::span<float> onto) {
  for (std::size_t i = 0; i < onto.size(); ++i) {
    onto[i] += values[i];
  }
}

}  // namespace

UnitGradient::UnitGradient(const UnitCut& cut, const UnitHome& home)
    : cut_(cut),
      home_(home),
      hops_(cut.layout.padded == 0 ? std::vector<Hop>{} : reduction_hops(home.spread.sharding)),
      kept_((cut.shards_gradients ? cut.shard.count : cut.layout.padded) * sizeof(float),
            cut.shards_gradients ? home.shard_tier : nullptr),
      full_(cut, home, cut.shards_gradients ? std::span<float>() : kept_.as_floats()) {}

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
  const DType wire = home_.options.gradient_wire;
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
  const DType wire = home_.options.gradient_wire;
  if (wire != DType::f32) {
    narrow(wire, full_.sum(), full_.sum().data());
  }
  fetch();
  float* sum = kept_.as_floats().data();
  if (sums_ended_ > 0) {
    addend_ = home_.sum_slots->take(cut_.id);
    sum = static_cast<float*>(addend_.data());
  }
  first_sum_ = axis_communicator.reduce_scatter(
      part_of(full_.sum().data(), 0, cut_.layout.padded, wire),
      floats({sum, divided(cut_.layout.padded, axis_communicator.size())}),
      home_.traffic.gradients);
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
  } else if (hop.scatters) {
    const std::size_t part = divided(cut_.layout.padded, axis_communicator.size());
    const std::size_t offset = part * static_cast<std::size_t>(axis_communicator.rank());
    first_sum_ = axis_communicator.reduce_scatter(
        whole(), floats(full_.sum().subspan(offset, part)), home_.traffic.gradients);
  } else {
    first_sum_ =
        axis_communicator.all_reduce(whole(), floats(full_.sum()), home_.traffic.gradients);
  }
}

void UnitGradient::finish_first_sum(bool last) {
  first_sum_.wait();
  full_.clear();
  narrowed_ = {};
  if (addend_) {
    add({static_cast<const float*>(addend_.data()), kept_.as_floats().size()}, kept_.as_floats());
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
  if (hop.scatters) {
    second_sum_ =
        axis_communicator.reduce_scatter(floats(shard), floats(own()), home_.traffic.gradients);
  } else {
    second_sum_ =
        axis_communicator.all_reduce(floats(shard), floats(shard), home_.traffic.gradients);
  }
}

void UnitGradient::finish_sums() {
  if (state_.is(GradientState::sum_of_replicas)) {
    second_sum_.wait();
    state_.move_to(GradientState::summed);
    release();
  }
}

void UnitGradient::end_step() {
  state_.move_to(GradientState::none);
  sums_ended_ = 0;
}

}  // namespace sprat::fsdp
