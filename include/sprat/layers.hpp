// The layers of a transformer on row-major f32 memory of the caller's: forward, the gradient of the
// input, and the gradient of the weights, each a call of its own, and what each costs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "sprat/export.hpp"
#include "sprat/mp.hpp"

/// A row is a token. No call keeps memory or starts a thread, and any thread may call. Rows, and
/// elements of a gradient of weights, are computed in one order, so bits depend neither on threads
/// nor on how rows are split into calls one after another; where a matrix product takes part, that
/// holds with the backend "reference". backward_input overwrites, where it does not say that it
/// adds. backward_weight adds into the gradient, so that micro-batches and uses add up, and does
/// not read the weights.
///
/// `row_pieces` of a shape: where ranks have rows of a micro-batch (sequence parallelism),
/// gradients that are sums over rows are added up in pieces, of which piece i begins at row
/// floor(rows * i / row_pieces). They are joined as the canonical tree joins ranks
/// (docs/numerics.md), and the whole is added to the gradient. If one rank with all rows has 4
/// pieces, each of T = 2 or 4 ranks with rows from floor(rows * i / T) on has 4 / T, and the
/// canonical sum of what they add to zeros has the bits of the one. With 1, each row is added to
/// the gradient.
namespace sprat::layers {

/// Operations on f32 (an exponential, a division and a root count as one each), and bytes if every
/// operand is read and every result written once. A pure function of a layer's shape.
struct Cost {
  std::uint64_t flops = 0, bytes = 0;
  bool operator==(const Cost&) const = default;
};

// Linear: y = x weight^T + bias; weight is outputs x inputs.

/// The sizes of a linear layer.
struct LinearShape {
  int rows = 0, inputs = 0, outputs = 0;
  /// Under tensor parallelism: of how many parts the inputs here are one (row-parallel), or the
  /// outputs (column-parallel), as in MatrixProduct::inner_parts. A sum over parts is the caller's,
  /// and no bias comes before it.
  int input_parts = 1, output_parts = 1;
  int output_groups = 1;  ///< 3 where queries, keys and values are one layer, each cut by itself.
};
/// A linear layer with its parameters.
struct Linear {
  const GemmBackend& gemm;
  LinearShape shape;
  std::span<const float> weight;
  std::span<const float> bias = {};  ///< Empty: none.
};
SPRAT_API void linear_forward(const Linear& layer, const float* x, float* y);
/// y = residual + x weight^T + bias. y may be residual.
SPRAT_API void linear_forward_onto(const Linear& layer, const float* residual, const float* x,
                                   float* y);
SPRAT_API void linear_backward_input(const Linear& layer, const float* dy, float* dx);
/// What a linear layer's gradients are made of, and where they go.
struct LinearGradients {
  const float* x = nullptr;
  const float* dy = nullptr;
  std::span<float> weight;
  std::span<float> bias = {};  ///< Empty: none.
};
/// The weight's gradient is a product over rows, so its bits depend on which rows a call has.
SPRAT_API void linear_backward_weight(const GemmBackend& gemm, const LinearShape& shape,
                                      const LinearGradients& gradients);
SPRAT_API Cost linear_forward_cost(const LinearShape& shape) noexcept;
SPRAT_API Cost linear_backward_input_cost(const LinearShape& shape) noexcept;
SPRAT_API Cost linear_backward_weight_cost(const LinearShape& shape) noexcept;

// Bias: y += residual + bias, by row, behind a product that is summed over ranks. With "reference"
// these are the bits of linear_forward_onto().

/// The sizes of a bias.
struct BiasShape {
  int rows = 0, width = 0;
  int row_pieces = 1;
};
SPRAT_API void bias_forward_onto(const BiasShape& shape, std::span<const float> bias,
                                 const float* residual, float* y);
/// `workspace`: bias_backward_workspace() elements, of any value.
SPRAT_API void bias_backward_weight(const BiasShape& shape, const float* dy, std::span<float> bias,
                                    std::span<float> workspace = {});
SPRAT_API std::size_t bias_backward_workspace(const BiasShape& shape) noexcept;
SPRAT_API Cost bias_forward_onto_cost(const BiasShape& shape) noexcept;
SPRAT_API Cost bias_backward_weight_cost(const BiasShape& shape) noexcept;

// Layer norm: y = (x - mean) / sqrt(variance + 1e-5) * gain + bias, by row.

/// The sizes of a layer norm.
struct LayerNormShape {
  int rows = 0, width = 0;
  int row_pieces = 1;
};
/// A layer norm with its parameters, of `width` elements each.
struct LayerNorm {
  LayerNormShape shape;
  std::span<const float> gain, bias;
};
/// Keeps each row's mean and reciprocal deviation for the backward.
SPRAT_API void layer_norm_forward(const LayerNorm& layer, const float* x, float* y, float* mean,
                                  float* reciprocal);
/// What the backward passes read: the forward's input, what it kept, the gradient of its output.
struct LayerNormPass {
  const float* x = nullptr;
  const float* mean = nullptr;
  const float* reciprocal = nullptr;
  const float* dy = nullptr;
};
/// Adds into dx: a norm stands on a branch of the residual stream.
SPRAT_API void layer_norm_backward_input(const LayerNormShape& shape, std::span<const float> gain,
                                         const LayerNormPass& pass, float* dx);
/// `workspace`: layer_norm_backward_workspace() elements, of any value.
SPRAT_API void layer_norm_backward_weight(const LayerNormShape& shape, const LayerNormPass& pass,
                                          std::span<float> gain, std::span<float> bias,
                                          std::span<float> workspace = {});
SPRAT_API std::size_t layer_norm_backward_workspace(const LayerNormShape& shape) noexcept;
SPRAT_API Cost layer_norm_forward_cost(const LayerNormShape& shape) noexcept;
SPRAT_API Cost layer_norm_backward_input_cost(const LayerNormShape& shape) noexcept;
SPRAT_API Cost layer_norm_backward_weight_cost(const LayerNormShape& shape) noexcept;

// GELU in its tanh form: y = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3).

SPRAT_API void gelu_forward(std::span<const float> x, float* y);
/// dy becomes dx, in place.
SPRAT_API void gelu_backward_input(std::span<const float> x, float* dy);
SPRAT_API Cost gelu_forward_cost(std::size_t count) noexcept;
SPRAT_API Cost gelu_backward_input_cost(std::size_t count) noexcept;

// Residual: y = x + branch; the gradient of y is that of both.

SPRAT_API void residual_forward(std::span<const float> x, const float* branch, float* y);
/// dx += dy, where the branch's gradient meets the stream's.
SPRAT_API void residual_backward_input(std::span<const float> dy, float* dx);
SPRAT_API Cost residual_cost(std::size_t count) noexcept;

/// Tokens [first, first + count) of a vocabulary, those of a rank where ranks cut it.
struct TokenRange {
  int first = 0, count = 0;
};

// Embedding: x[row] = table[tokens[row]]. Throws Error{invalid_argument} for a token that is not in
// [0, vocabulary), before anything is written. A token that the table here does not have gives a
// row of zeros, and no gradient: the sum over ranks, which is the caller's, is the row of who has
// it.

/// The sizes of an embedding, and which tokens are here.
struct EmbeddingShape {
  int vocabulary = 0, width = 0;
  std::optional<TokenRange> part = {};  ///< What the table has. Empty: the whole vocabulary.
};
SPRAT_API void embedding_forward(const EmbeddingShape& shape, std::span<const std::int32_t> tokens,
                                 std::span<const float> table, float* x);
SPRAT_API void embedding_backward_weight(const EmbeddingShape& shape,
                                         std::span<const std::int32_t> tokens, const float* dx,
                                         std::span<float> table);
SPRAT_API Cost embedding_forward_cost(const EmbeddingShape& shape, std::size_t rows) noexcept;
SPRAT_API Cost embedding_backward_weight_cost(const EmbeddingShape& shape,
                                              std::size_t rows) noexcept;

// Position embedding: x[row] += table[first + r], r = (first_row + row) % length, for sequences of
// `length` rows; behind the middle of a sequence table[first + r + left_out].

/// The sizes of a position embedding, and which positions are here.
struct PositionShape {
  int rows = 0, length = 0, width = 0;
  int first = 0;      ///< Position of a sequence's first row.
  int first_row = 0;  ///< Which row of the sequences the first one here is.
  int left_out = 0;   ///< Positions that other ranks have: context_pieces() are two runs of them.
  int row_pieces = 1;
};
SPRAT_API void position_forward(const PositionShape& shape, std::span<const float> table, float* x);
/// `workspace`: position_backward_workspace() elements, of any value.
SPRAT_API void position_backward_weight(const PositionShape& shape, const float* dx,
                                        std::span<float> table, std::span<float> workspace = {});
SPRAT_API std::size_t position_backward_workspace(const PositionShape& shape) noexcept;
SPRAT_API Cost position_cost(const PositionShape& shape) noexcept;

// Softmax cross entropy: loss[row] = -log softmax(logits[row])[targets[row]], in nats. Throws
// Error{invalid_argument} for a target that is not in [0, vocabulary), before anything is written.

/// A loss over a vocabulary, or a part of one.
struct CrossEntropy {
  int vocabulary = 0;
  std::span<const std::int32_t> targets;  ///< One for each row.
  std::optional<TokenRange> part = {};    ///< What a row has logits of. Empty: of all.
  /// Into how many pieces the sum over the logits here is cut: piece i begins at floor(count * i /
  /// pieces), and they are joined as the canonical tree joins ranks (docs/numerics.md). Where one
  /// rank has 4 pieces, each of T = 2 or 4 that cut the vocabulary has 4 / T of them.
  int pieces = 1;
};
/// By row. The logarithm of a row's sum of exponentials is highest - log(share); it is kept in two
/// numbers, since the last bits of a logarithm differ between machines.
struct CrossEntropyRows {
  float* highest = nullptr;
  float* share = nullptr;  ///< 1 / the sum of exp(logit - highest).
  double* loss = nullptr;  ///< Unused by the backward pass.
};
SPRAT_API void cross_entropy_forward(const CrossEntropy& layer, const float* logits,
                                     const CrossEntropyRows& rows);
// The same in three calls, where ranks have parts of the vocabulary. In between the caller joins
// what they have: then the canonical sums have the bits of one rank that has all.
/// Each row's highest logit, to be joined by maximum; -infinity of none.
SPRAT_API void cross_entropy_highest(const CrossEntropy& layer, const float* logits,
                                     float* highest);
/// Two numbers for each row, to be added up: the sum of exp(logit - highest), and the target's
/// logit, which is 0 where another part has it. `highest` is that of all parts.
SPRAT_API void cross_entropy_sums(const CrossEntropy& layer, const float* logits,
                                  const float* highest, float* sums);
/// rows.share and rows.loss, from rows.highest and the sums of all parts.
SPRAT_API void cross_entropy_finish(std::span<const float> sums, const CrossEntropyRows& rows);
/// The logits become scale times their gradient, in place.
SPRAT_API void cross_entropy_backward_input(const CrossEntropy& layer, const CrossEntropyRows& rows,
                                            float scale, float* logits);
/// `vocabulary`: the tokens of a part. The three calls cost what the one does.
SPRAT_API Cost cross_entropy_forward_cost(int vocabulary, std::size_t rows) noexcept;
SPRAT_API Cost cross_entropy_backward_input_cost(int vocabulary, std::size_t rows) noexcept;

// Causal self-attention by heads: out = softmax(query key^T / sqrt(head width)) value, in blocks of
// attention_block queries by at most attention_keys keys. No matrix of length x length is held.

inline constexpr int attention_block = 64, attention_keys = 256;

/// The sizes of attention.
struct AttentionShape {
  int sequences = 0, length = 0;  ///< Rows are sequences times length.
  int heads = 0, head_width = 0;  ///< In a row the heads stand one after another.
};
/// Rows of query, key and value, `stride` elements from one to the next.
struct AttentionInput {
  const float* query = nullptr;
  const float* key = nullptr;
  const float* value = nullptr;
  int stride = 0;
};
/// By sequence, head and query, attention_kept_count() / 2 of each: as CrossEntropyRows has them.
struct AttentionRows {
  float* highest = nullptr;
  float* share = nullptr;
};
/// What the forward pass of attention reads and writes.
struct AttentionForward {
  AttentionInput input = {};
  float* out = nullptr;
  int out_stride = 0;
  AttentionRows rows = {};
  std::span<float> workspace;  ///< attention_forward_workspace() elements, of any value.
};
SPRAT_API void attention_forward(const GemmBackend& gemm, const AttentionShape& shape,
                                 const AttentionForward& pass);
/// What the backward pass of attention reads and writes.
struct AttentionBackward {
  AttentionInput input = {};
  const float* out = nullptr;
  const float* dout = nullptr;
  int out_stride = 0;  ///< Of dout too.
  AttentionRows rows = {};
  float* dquery = nullptr;  ///< With their rows as far apart as the input's.
  float* dkey = nullptr;
  float* dvalue = nullptr;
  std::span<float> workspace;  ///< attention_backward_workspace() elements, of any value.
};
SPRAT_API void attention_backward_input(const GemmBackend& gemm, const AttentionShape& shape,
                                        const AttentionBackward& pass);
/// Elements that the forward keeps for the backward, beside its input and output.
SPRAT_API std::size_t attention_kept_count(const AttentionShape& shape) noexcept;
SPRAT_API std::size_t attention_forward_workspace(const AttentionShape& shape) noexcept;
SPRAT_API std::size_t attention_backward_workspace(const AttentionShape& shape) noexcept;
/// With what lies above the diagonal in blocks on it.
SPRAT_API Cost attention_forward_cost(const AttentionShape& shape) noexcept;
SPRAT_API Cost attention_backward_input_cost(const AttentionShape& shape) noexcept;

// A piece of it: some queries of each sequence against some keys, each a run of positions. The
// whole above is the piece of all.

/// Which queries meet which keys.
struct AttentionPiece {
  int sequences = 0, heads = 0, head_width = 0;
  int first_query = 0, queries = 0;  ///< Positions in their sequence.
  int first_key = 0, keys = 0;
};
/// Rows of the queries. In memory a sequence's first is `sequence_rows` rows behind the one before,
/// and so are the rows of outputs; kept numbers are as many behind those of the head before.
struct AttentionQueries {
  const float* query = nullptr;
  int stride = 0;
  int sequence_rows = 0;
};
/// Rows of the keys and of their values, likewise.
struct AttentionKeys {
  const float* key = nullptr;
  const float* value = nullptr;
  int stride = 0;
  int sequence_rows = 0;
};
/// What the forward pass of a piece reads, and goes on with.
struct AttentionPieceForward {
  AttentionQueries queries = {};
  AttentionKeys keys = {};
  float* out = nullptr;
  int out_stride = 0;
  AttentionRows rows = {};
  std::span<float> workspace;  ///< attention_forward_workspace() elements, of any value.
};
/// Takes the queries on over these keys. Calls for the same queries have keys in ascending order
/// without a gap: those of the first begin at position 0, each others' where the last ended. A
/// query's output is done when its own position was among the keys; until then `out` and `rows` are
/// on the way there. What lies behind the diagonal is not computed. Keys end at a multiple of
/// attention_keys, or at or behind the last query: so a block of keys is never cut, and where the
/// queries, too, begin at a multiple of attention_block and end at one or with the sequence, every
/// bit is that of the whole.
SPRAT_API void attention_forward_piece(const GemmBackend& gemm, const AttentionPiece& piece,
                                       const AttentionPieceForward& pass);
/// Rows of gradients of keys and values, apart from each other as they like.
struct AttentionKeyGradients {
  float* key = nullptr;
  float* value = nullptr;
  int stride = 0;
  int sequence_rows = 0;
};
/// What the backward pass of a piece reads, and adds to.
struct AttentionPieceBackward {
  AttentionQueries queries = {};
  AttentionKeys keys = {};
  const float* out = nullptr;
  const float* dout = nullptr;
  int out_stride = 0;  ///< Of dout too.
  AttentionRows rows = {};
  float* dquery = nullptr;  ///< With its rows as far apart as the query's.
  AttentionKeyGradients dkeys = {};
  std::span<float> workspace;  ///< attention_backward_workspace() elements, of any value.
};
/// Adds into all three gradients. Pieces may come in any order; keys may begin and end anywhere.
SPRAT_API void attention_backward_piece(const GemmBackend& gemm, const AttentionPiece& piece,
                                        const AttentionPieceBackward& pass);
SPRAT_API std::size_t attention_forward_workspace(const AttentionPiece& piece) noexcept;
SPRAT_API std::size_t attention_backward_workspace(const AttentionPiece& piece) noexcept;
SPRAT_API Cost attention_forward_cost(const AttentionPiece& piece) noexcept;
SPRAT_API Cost attention_backward_input_cost(const AttentionPiece& piece) noexcept;

}  // namespace sprat::layers
