// Which memory a rank's passes need, and when: a rehearsal of its actions. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "sprat/activations.hpp"
#include "train/model/gpt_extents.hpp"
#include "train/model/gpt_passes.hpp"

namespace sprat::train {

/// Where something of one layer and micro-batch is.
struct ActivationPlace {
  enum class Where : std::uint8_t {
    nowhere,  ///< It is not kept.
    tape,     ///< number: of ActivationProgram::storage_bytes.
    kept,     ///< number: of ActivationProgram::kept.
  };
  Where where = Where::nowhere;
  int number = -1;
};
struct LayerPlaces {
  ActivationPlace input;  ///< The residual stream before a block.
  ActivationPlace tape;   ///< What else a block's forward makes; all that the head's does.
  /// From backward_input to backward_weight: what the weights' gradients are made of.
  ActivationPlace gradients;
};

struct GptMemoryPlan {
  ActivationProgram program;        ///< A step for every LayerPass, in order.
  std::vector<LayerPlaces> places;  ///< By layer and micro-batch: at().
  int microbatches = 0;

  const LayerPlaces& at(int layer, int microbatch) const {
    return places[static_cast<std::size_t>(layer * microbatches + microbatch)];
  }
};
/// `passes` as layer_passes() gives them; for micro-batches of at most `rows` tokens.
GptMemoryPlan plan_gpt_memory(const GptShape& shape, const GptPlan& plan,
                              const std::vector<std::vector<LayerPass>>& passes, int rows);

/// Elements of a block's gradients that backward_weight needs, that of its output among them.
std::size_t split_block_gradients_count(const GptExtents& extents);

}  // namespace sprat::train
