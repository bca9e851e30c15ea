// What a rank's actions are made of, layer by layer: the one list that says which units are used,
// which memory is needed, and what is computed. Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "sprat/fsdp.hpp"
#include "sprat/pipeline.hpp"
#include "train/model/gpt_index.hpp"

namespace sprat::train {

/// What a layer does to a micro-batch.
enum class PassKind : std::uint8_t {
  forward,
  recompute,  ///< Makes what checkpoints dropped.
  backward,   ///< Both of the following.
  backward_input,
  backward_weight,
};
/// Forward and backward of every micro-batch in turn, through all stages of the placement.
std::vector<mp::Action> plain_actions(const GptPlacement& placement, int microbatches);

/// As blocks of a checkpoint.
inline constexpr int whole_stage = std::numeric_limits<int>::max();

/// What a rank is to play: placement, checkpoints, actions in order.
struct GptPlan {
  GptPlacement placement = {};
  int checkpoint_blocks = 0;
  std::vector<mp::Action> actions = {};  ///< Computations alone: mp::computations_of().
};

/// One layer's part of an action.
struct LayerPass {
  PassKind pass{};
  int layer = 0, microbatch = 0;
  friend bool operator==(const LayerPass&, const LayerPass&) = default;
};
/// By action. Throws Error{invalid_argument} naming an action that has not what it needs, as a
/// backward without its forward.
std::vector<std::vector<LayerPass>> layer_passes(const GptShape& shape, const GptPlan& plan);

bool is_block(const GptShape& shape, int layer);
/// The blocks whose activations are one checkpoint with that of the layer; none if it has none.
LayerRange checkpoint_of(const GptShape& shape, const GptPlan& plan, int layer);

/// The units that a layer's pass uses, in order, by their place in the whole model.
std::vector<Visit> layer_visits(const GptShape& shape, const LayerPass& pass);
/// The uses of units in the order in which GptStages acquires them. `unit` counts the rank's own,
/// as gpt_units() lists them. The gradients of a unit are whole for a micro-batch after its visit
/// that adds to them; backward_input's visits need values alone, so they are of pass forward.
std::vector<Visit> gpt_visits(const GptShape& shape, const GptPlan& plan);

}  // namespace sprat::train
