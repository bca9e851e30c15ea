// Where each parameter of the GPT is: layers, unit numbers in the whole model, and indices within a
// unit.
#pragma once

#include "train/model/gpt.hpp"

namespace sprat::train {

inline constexpr int embedding_layer = 0;
inline int block_layer(int index) { return 1 + index; }
inline int block_of(int layer) { return layer - 1; }
inline int head_layer(const GptShape& shape) { return 1 + shape.layers; }

inline constexpr int table_unit = 0, position_unit = 1;
inline int block_unit(int index) { return 2 + index; }
inline int norm_unit(const GptShape& shape) { return 2 + shape.layers; }
inline int head_unit(const GptShape& shape) { return 3 + shape.layers; }

/// The units of a layer, in the order in which a forward uses them.
std::vector<int> units_of_layer(const GptShape& shape, int layer);
/// The stage's layers: [first, end).
struct LayerRange {
  int first = 0, end = 0;
};
LayerRange layers_of_stage(const GptShape& shape, const GptPlacement& placement, int stage);
/// Throws Error{invalid_argument} if stages do not cut the layers into pieces, or the rank has one
/// that is not there.
void check_placement(const GptShape& shape, const GptPlacement& placement);

/// By unit of the whole model: its place among the rank's own, -1 if it is another rank's.
std::vector<int> own_units(const GptShape& shape, const GptPlacement& placement);

/// In the units of the table, of positions and of the head.
inline constexpr int table_values = 0;
/// In a norm, alone or from a place in a block on.
inline constexpr int norm_gain = 0, norm_bias = 1;
/// In a block, each with its bias after it.
enum BlockParameter : int {
  first_norm = 0,
  qkv_weight = 2,
  projection_weight = 4,
  second_norm = 6,
  up_weight = 8,
  down_weight = 10,
};

}  // namespace sprat::train
