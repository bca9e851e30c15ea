// A GPT-2-style decoder: its shape, its layers, and its parameters as units.
//
// Layers, in order: the embedding, a block each, the head. A stage of a pipeline is some of them
// that follow each other.
#pragma once

#include <cstdint>
#include <vector>

#include "sprat/fsdp.hpp"
#include "sprat/tensor.hpp"

namespace sprat::train {

struct GptShape {
  int layers = 4;   ///< Blocks.
  int width = 128;  ///< A multiple of heads.
  int heads = 4;
  int context = 128;     ///< Tokens that a prediction may look back on.
  int vocabulary = 256;  ///< Tokens that there may be: bytes, or more.

  int hidden() const { return 4 * width; }
};

/// The embedding and the head count, too.
inline int gpt_layer_count(const GptShape& shape) { return shape.layers + 2; }

/// Which layers a rank has, which part of them, and of which positions.
struct GptPlacement {
  std::vector<int> first_layer = {0};  ///< Of each stage of the pipeline, rising from 0.
  std::vector<int> stages = {0};       ///< The rank's own, rising.
  /// How layers are cut; the degree divides the heads.
  tensor::Parallelism tensor = {};
  int tensor_rank = 0;
  /// How many ranks share the positions of each sequence, as context_pieces() deals them.
  int context_degree = 1, context_rank = 0;

  /// Positions that this rank has of a sequence of the model's context.
  int own_positions(const GptShape& shape) const { return shape.context / context_degree; }
};

/// The units of a rank's stages in the order of the model: tokens' table, positions, a unit for
/// each block, final norm, head. Their ids are the positions in the whole model. The head is tied
/// to the table, or to that of another rank. Initial values are GPT-2's, and depend on `seed`, a
/// parameter's name and an element's index alone. Of what tensor ranks share each has its box,
/// three of query, key and value; what they have alike is tied on all but the first.
std::vector<UnitSpec> gpt_units(const GptShape& shape, std::uint64_t seed,
                                const GptPlacement& placement = {});
/// The rank's own units in the order in which an evaluation of a micro-batch uses them.
std::vector<int> gpt_forward_order(const GptShape& shape, const GptPlacement& placement = {});

}  // namespace sprat::train
