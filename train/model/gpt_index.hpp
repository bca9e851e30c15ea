// Where each parameter of the GPT is: unit numbers and indices within a unit.
#pragma once

#include "train/model/gpt.hpp"

namespace sprat::train {

inline constexpr int embedding_unit = 0;
inline int block_unit(int index) { return 1 + index; }
inline int norm_unit(const GptShape& shape) { return 1 + shape.layers; }

/// In the embedding unit.
enum EmbeddingParameter : int { token_table, position_table };
/// In a norm, alone or as the first of a block's parameters.
enum NormParameter : int { norm_gain, norm_bias };
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
