// A block of the GPT: attention and MLP on the residual stream, forward and backward, on memory of
// the caller's.
#pragma once

#include <cstddef>
#include <span>

#include "sprat/context.hpp"
#include "sprat/mp.hpp"
#include "train/model/gpt_extents.hpp"
#include "train/model/unit_access.hpp"

namespace sprat::train {

/// Memory that a call needs no longer than it takes: as many elements as functions of these names
/// say.
struct GptWorkspaces {
  std::span<float> attention, exchange, row_sums, partial_gradients;
};
/// What one call computes: rows of a micro-batch, sequences of `length`, with the other ranks of a
/// tensor parallel group. Where sequences are cut, `length` is what this rank has of each.
struct GptRows {
  const GptShape& shape;
  const GemmBackend& gemm;
  tensor::Group& group;
  ContextAttention* context = nullptr;  ///< Null: sequences are whole.
  GptExtents extents;
  int length = 1;
  int first_position = 0, left_out = 0;  ///< As layers::PositionShape.
  GptWorkspaces workspaces;
};
/// For sequences of any length.
std::size_t attention_workspace(const GptShape& shape);

/// What a block's forward makes on its way. Own rows of the stream and of norms, all rows inside of
/// attention and MLP.
struct BlockTape {
  float *mean = nullptr, *reciprocal = nullptr;  ///< Of the first norm, by row.
  float *normed = nullptr, *qkv = nullptr;       ///< Into attention,
  float *highest = nullptr, *share = nullptr;    ///< its softmax by sequence, head and query,
  float* attended = nullptr;                     ///< and out of its heads.
  float* middle = nullptr;                       ///< The residual stream after it.
  float *middle_mean = nullptr, *middle_reciprocal = nullptr;
  float *middle_normed = nullptr, *up = nullptr, *gated = nullptr;  ///< Through the MLP.
};
/// What a backward needs of it all; and how many elements that is.
BlockTape block_tape(const GptExtents& extents, float* memory);
std::size_t block_tape_count(const GptExtents& extents);
/// For a forward without a backward: memory is used again as soon as it may be.
BlockTape passing_block_tape(const GptExtents& extents, float* memory);
std::size_t passing_block_tape_count(const GptExtents& extents);

/// Gradients on the way through a block that its weights' gradients are made of.
struct BlockGradients {
  const float* output = nullptr;  ///< The caller's.
  float* middle = nullptr;        ///< Of the residual stream after attention.
  float *up = nullptr, *middle_normed = nullptr, *qkv = nullptr, *attended = nullptr,
        *normed = nullptr;
};
/// For halves: all of it is there until the second one. The output's stands behind block_gradients.
BlockGradients block_gradients(const GptExtents& extents, float* memory);
std::size_t block_gradients_count(const GptExtents& extents);
/// For a backward at once, where output, middle and dx are one stream: without those.
BlockGradients passing_block_gradients(const GptExtents& extents, float* memory);
std::size_t passing_block_gradients_count(const GptExtents& extents);

/// Everything but the output; x is the residual stream before the block.
void block_forward_tape(const GptRows& run, const UnitValues& unit, const float* x,
                        const BlockTape& tape);
/// The residual stream after the block. y may be the x of before.
void block_forward_output(const GptRows& run, const UnitValues& unit, const BlockTape& tape,
                          float* y);
/// A block's backward: where everything is.
struct BlockBackward {
  const GptRows& run;
  const float* x = nullptr;
  const BlockTape& tape;
  const BlockGradients& gradients;
};
/// Writes dx and, for the other half, `gradients`.
void block_backward_input(const BlockBackward& block, const UnitValues& unit, float* dx);
/// Adds to the gradients of the unit.
void block_backward_weight(const BlockBackward& block, const UnitGradients& unit);
/// Both, with the same bits. `stream` is the gradient of the output and becomes that of the input;
/// `gradients` are passing ones.
void block_backward(BlockBackward block, const UnitValues& values, const UnitGradients& unit,
                    float* stream);

}  // namespace sprat::train
