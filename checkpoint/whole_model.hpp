// The state of a whole model whose stages, or parts of whose tensors, are on different ranks: what
// plans of saves and loads see.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "fsdp/model_state.hpp"
#include "sprat/communicator.hpp"

namespace sprat::fsdp {

/// Every unit of the model, the same list on every rank; this rank views the values of its own
/// units alone. Ranks of the job are in groups, each of which has a part of the model.
class WholeModel {
 public:
  /// Of one group of ranks, which has all of it.
  explicit WholeModel(ModelState whole) : state_(std::move(whole)) {}
  /// Collective over `world`, where each rank gives the group it is in and what the group has:
  /// three exchanges of names, shapes and ranks. Holders become ranks of `world`. Units come by the
  /// first ranks of their groups. Throws the same Error on every rank: {invalid_argument} if a rank
  /// of a group is not in `world`, groups have different optimizers, or as check_names() does.
  WholeModel(Communicator& world, Communicator& group, ModelState part);
  WholeModel(WholeModel&&) = default;  // a copy's specs would be this one's
  WholeModel& operator=(WholeModel&&) = delete;

  const ModelState& state() const noexcept { return state_; }
  /// How many stages the model has, and into how many parts the tensors of each are cut: as many
  /// groups of ranks.
  int stages() const noexcept { return stages_; }
  int tensor_parts() const noexcept { return tensor_parts_; }

 private:
  ModelState state_;
  std::deque<UnitSpec> specs_;  // of other groups' units, which stay where they are
  int stages_ = 1, tensor_parts_ = 1;
};

/// What other ranks need to know of a group's part of a model, as bytes: states, and by unit names,
/// shapes, places in the flat buffer and holders; no values. Pure, as the next.
std::vector<std::uint8_t> description_of(const ModelState& part);
/// The units of a description, which this rank holds no part of; their specs go into `specs`.
ModelState described_model(const std::vector<std::uint8_t>& description,
                           std::deque<UnitSpec>& specs);

}  // namespace sprat::fsdp
