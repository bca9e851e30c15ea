// A unit's update, and what its checkpoint sees.
#include "fsdp/unit.hpp"

#include <cstddef>

namespace sprat::fsdp {

Unit::Unit(const UnitSpec& spec, std::span<const ParameterOrigin> origins, int id,
           const UnitHome& home)
    : home_(home),
      cut_(spec, origins, id, home.spread.sharding, home.rank),
      gradient_(cut_, home_) {
  if (spec.tied_to >= 0) {
    return;  // the unit it is tied to has the rest
  }
  parameters_.emplace(cut_, home_);
  for (int state = 0; state < home.states; ++state) {
    states_.emplace_back(cut_.own.count * sizeof(float), home.state_tier);
  }
  release_state();
}

std::size_t Unit::kept_bytes() const {
  return (has_parameters() ? parameters_->kept_bytes() : 0) + gradient_.kept_bytes() +
         states_.size() * cut_.own.count * sizeof(float);
}

std::size_t Unit::parameter_count() const {
  std::size_t count = 0;
  for (std::size_t index = 0; has_parameters() && index < cut_.layout.items.size(); ++index) {
    count += cut_.spec.parameters[index].tied ? 0 : cut_.layout.items[index].count;
  }
  return count;
}

StoredUnit Unit::held() {
  parameters_->finish();
  const Sharding& sharding = home_.spread.sharding;
  StoredUnit held{.spec = &cut_.spec,
                  .layout = cut_.layout,
                  .parts = cut_.part.parts,
                  .part = cut_.part.part,
                  .copies = cut_.part.copies,
                  .copy = cut_.part.copy,
                  .holders = std::vector<int>(static_cast<std::size_t>(sharding.ranks())),
                  .values = {parameters_->own()}};
  for (int rank = 0; rank < sharding.ranks(); ++rank) {
    const OptimizerPart its = optimizer_part(sharding, rank);
    held.holders[static_cast<std::size_t>(its.copy * its.parts + its.part)] = rank;
  }
  for (const KeptArray& state : states_) {
    held.values.push_back(state.as_floats());
  }
  return held;
}

void Unit::add_squares(std::span<SquareSum> sums) {
  for (const ShardPiece& piece : cut_.own.pieces) {
    const auto index = static_cast<std::size_t>(piece.parameter);
    if (has_parameters() && !cut_.spec.parameters[index].tied) {
      sums[static_cast<std::size_t>(cut_.origins[index].owner)].add(
          gradient_.own().subspan(piece.shard_offset, piece.count));
    }
  }
  gradient_.release();
}

void Unit::fetch_state() {
  parameters_->fetch();
  gradient_.fetch();
  parameters_->fetch_masters();
  for (const KeptArray& state : states_) {
    state.fetch();
  }
}

void Unit::release_state() {
  parameters_->release();
  gradient_.release();
  for (const KeptArray& state : states_) {
    state.release();
  }
}

void Unit::update(const Optimizer& optimizer, std::int64_t step) {
  parameters_->finish();
  std::vector<std::span<float>> states(states_.size());
  for (const DecayRange& range : cut_.own.ranges) {
    const auto part = [&](std::span<float> values) {
      return values.subspan(range.offset, range.count);
    };
    for (std::size_t state = 0; state < states.size(); ++state) {
      states[state] = part(states_[state].as_floats());
    }
    optimizer.update(range.decay, {.parameters = part(parameters_->own()),
                                   .gradients = part(gradient_.own()),
                                   .states = states});
  }
  parameters_->refresh(step);
  release_state();
}

}  // namespace sprat::fsdp
