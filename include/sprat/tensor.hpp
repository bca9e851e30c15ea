// Tensor parallelism as Megatron-LM has it (Shoeybi et al. 2019; Korthikanti et al. 2022): linear
// layers, embedding and loss that are cut among the ranks of a group, on f32 memory of the
// caller's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sprat/communicator.hpp"
#include "sprat/export.hpp"
#include "sprat/layers.hpp"

/// A column-parallel layer has some of the outputs, all of the inputs; a row-parallel one behind it
/// has those outputs as its inputs. Between the two nothing travels. A region is such a pair:
/// query, key, value and projection of attention, or the MLP. Outside of regions every rank has
/// every row of a micro-batch, or, with sequence parallelism, its own rows alone; inside it has
/// every row. Where each rank reads as many samples, its own rows are those of its own samples.
///
/// All ranks of a group make the same calls in the same order, on one thread each. With the backend
/// "reference" bits are the same at every degree that divides virtual_tp, with and without sequence
/// parallelism, and whatever the chunks.
namespace sprat::tensor {

/// Some indices of a dimension, or rows.
struct Part {
  int first = 0, count = 0;
  int end() const noexcept { return first + count; }
  friend bool operator==(const Part&, const Part&) = default;
};
/// The part `index` of `parts`, which begins at floor(extent * index / parts).
SPRAT_API Part part_of(int extent, int parts, int index);

/// How a model is cut. The same on all ranks of the group.
struct Parallelism {
  int degree = 1;
  /// Whether rows are dealt to ranks outside of regions: activations there take 1 / degree of the
  /// memory, and a block sends a quarter as much again, for what it gathers once more in backward.
  bool sequence_parallel = false;
  /// A product is cut so that sums of about so many bytes travel while the rest is computed.
  std::size_t chunk_bytes = std::size_t{512} * 1024;
  /// No product is cut to fewer rows: each reads all of the weights, as if it had some 40 rows
  /// more.
  int chunk_rows = 256;
};

/// Bytes of the buffers that were given to collectives, whole ones. Sums of them are of f32.
struct Traffic {
  std::uint64_t all_reduced = 0, gathered = 0, scattered = 0;

  /// What each rank sends of them, as the collectives' definitions count it: of a gather and of a
  /// reduce-scatter over p ranks (p-1)/p of the buffer, of an all-reduce twice that.
  double sent(int degree) const noexcept;
  Traffic& operator+=(const Traffic& more) noexcept;
  friend bool operator==(const Traffic&, const Traffic&) = default;
};
/// Of layers whose rows have `width` elements outside of the region, by micro-batch.
SPRAT_API Traffic column_forward_traffic(const Parallelism& how, int rows, int width) noexcept;
/// Of both halves, at once or apart.
SPRAT_API Traffic column_backward_traffic(const Parallelism& how, int rows, int width) noexcept;
/// Of the embedding, too. Backward halves that are apart gather twice.
SPRAT_API Traffic row_forward_traffic(const Parallelism& how, int rows, int width) noexcept;
SPRAT_API Traffic row_backward_traffic(const Parallelism& how, int rows, int width) noexcept;
SPRAT_API Traffic cross_entropy_traffic(const Parallelism& how, int rows) noexcept;

/// The ranks that have parts of the same layers, and what they have sent.
class SPRAT_API Group {
 public:
  Group() = default;  ///< Of one rank, which needs no communicator.
  /// `ranks` must outlive the group, and is used by it alone. Throws Error{invalid_argument} unless
  /// it has as many ranks as the degree says.
  Group(Communicator& ranks, const Parallelism& how);

  const Parallelism& how() const noexcept { return how_; }
  int rank() const noexcept { return ranks_ == nullptr ? 0 : ranks_->rank(); }
  /// This rank's part of a dimension of weights.
  Part own_part(int extent) const { return part_of(extent, how_.degree, rank()); }
  /// The rows that it has outside of regions.
  Part own_rows(int rows) const;
  /// row_pieces of layers on own rows, where those of all rows are so many.
  int own_row_pieces(int pieces) const noexcept;
  /// Since construction.
  const Traffic& traffic() const noexcept { return traffic_; }

  // Collectives, counted; on one rank they do nothing, and parts lie at their blocks.
  /// data <- the sum over the group, in canonical order; or the maximum.
  Work sum(std::span<float> data);
  Work highest(std::span<float> data);
  /// whole <- parts of `counts` elements, in order of ranks. In place if the part lies at its
  /// block.
  Work gather(const float* part, std::span<float> whole, std::span<const std::size_t> counts);
  /// The same of token ids, part apart from whole, on one rank too: where each has read samples of
  /// its own, embedding and loss take those of all.
  Work gather(std::span<const std::int32_t> part, std::span<std::int32_t> whole,
              std::span<const std::size_t> counts);
  /// part <- the sum of this rank's block of whole. In place likewise.
  Work scatter_sum(std::span<float> whole, float* part, std::span<const std::size_t> counts);

 private:
  Communicator* ranks_ = nullptr;
  Parallelism how_ = {};
  Traffic traffic_ = {};
};

// Linear layers. shape.rows are all rows of the micro-batch; inputs of a row-parallel layer and
// outputs of a column-parallel one are this rank's, and so are weight and bias but for the bias of
// a row-parallel one, which every rank has. output_groups is the caller's; input_parts and
// output_parts are the group's degree, whatever the shape says.

/// Elements of workspace that suffice for every pass of such a layer, of as many rows or fewer.
SPRAT_API std::size_t column_workspace(const Parallelism& how, const layers::LinearShape& shape);
SPRAT_API std::size_t row_workspace(const Parallelism& how, const layers::LinearShape& shape);

/// What a column-parallel layer reads and writes.
struct ColumnForward {
  const layers::Linear& layer;
  const float* x = nullptr;  ///< Own rows.
  float* y = nullptr;        ///< All rows.
  std::span<float> workspace = {};
};
/// Own rows are multiplied while others' come, and those by chunks.
SPRAT_API void column_forward(Group& group, const ColumnForward& pass);

/// What a row-parallel layer reads and writes.
struct RowForward {
  const layers::Linear& layer;
  const float* residual = nullptr;  ///< Own rows.
  const float* x = nullptr;         ///< All rows.
  float* y = nullptr;               ///< Own rows. May be residual.
  std::span<float> workspace = {};
};
/// y = residual + bias + x weight^T. Chunks of rows are summed while the next are multiplied.
SPRAT_API void row_forward(Group& group, const RowForward& pass);

/// What a backward reads and writes: x and dx have own rows and dy all rows in a column-parallel
/// layer; in a row-parallel one it is the other way round.
struct LinearBackward {
  const layers::Linear& layer;
  const float* x = nullptr;                 ///< The forward's.
  const float* dy = nullptr;                ///< Gradient of its output.
  float* dx = nullptr;                      ///< Overwritten.
  std::span<float> weight = {}, bias = {};  ///< Gradients to add to; no bias: empty.
  std::span<float> workspace = {};
};
/// Both of the halves below: the sum of dx travels while the weights' gradient is computed.
SPRAT_API void column_backward(Group& group, const LinearBackward& pass);
/// dx, dy and the workspace are the group's until the Work is done.
SPRAT_API Work column_backward_input(Group& group, const LinearBackward& pass);
SPRAT_API void column_backward_weight(Group& group, const LinearBackward& pass);
/// Both: what was gathered for dx is used for the weights, too.
SPRAT_API void row_backward(Group& group, const LinearBackward& pass);
SPRAT_API void row_backward_input(Group& group, const LinearBackward& pass);
SPRAT_API void row_backward_weight(Group& group, const LinearBackward& pass);

// Embedding and loss. The vocabulary is cut as own_tokens() says, whatever `part` says.

SPRAT_API layers::TokenRange own_tokens(const Group& group, int vocabulary);

/// What an embedding over parts of a vocabulary reads.
struct EmbeddingPass {
  layers::EmbeddingShape shape = {};
  std::span<const std::int32_t> tokens = {};  ///< Of all rows, the same on every rank.
  std::span<const float> table = {};          ///< Rows of own tokens. Unused by the backward.
  std::span<float> workspace = {};
};
SPRAT_API std::size_t embedding_workspace(const Parallelism& how,
                                          const layers::EmbeddingShape& shape, std::size_t rows);
/// x <- own rows.
SPRAT_API void embedding_forward(Group& group, const EmbeddingPass& pass, float* x);
/// Adds to the gradient of own tokens' rows; dx: own rows.
SPRAT_API void embedding_backward_weight(Group& group, const EmbeddingPass& pass, const float* dx,
                                         std::span<float> table);

/// What a loss over parts of a vocabulary reads and writes.
struct CrossEntropyForward {
  layers::CrossEntropy layer = {};     ///< targets: of all rows. pieces: of the whole vocabulary.
  const float* logits = nullptr;       ///< All rows, own tokens.
  layers::CrossEntropyRows rows = {};  ///< All rows, the same on every rank afterwards.
  std::span<float> workspace = {};
};
SPRAT_API std::size_t cross_entropy_workspace(const Parallelism& how, std::size_t rows);
SPRAT_API void cross_entropy_forward(Group& group, const CrossEntropyForward& pass);
/// Nothing travels. The logits become scale times their gradient, in place.
SPRAT_API void cross_entropy_backward_input(const Group& group, const layers::CrossEntropy& layer,
                                            const layers::CrossEntropyRows& rows, float scale,
                                            float* logits);

/// Of sums over rows: norms' gains and biases, positions. With sequence parallelism a rank has
/// those of its own rows, which are summed over the group before they are added to a gradient;
/// without it they are added at once.
class SPRAT_API PartialGradients {
 public:
  /// `workspace`: as many elements as all gradients together, if rows are dealt to ranks.
  PartialGradients(Group& group, std::span<float> workspace);
  /// Ends the sum, however; what it has summed is added by finish() alone.
  ~PartialGradients();
  PartialGradients(const PartialGradients&) = delete;
  PartialGradients& operator=(const PartialGradients&) = delete;

  /// What own rows are to be added into: zeros, or the gradient itself.
  std::span<float> of(std::span<float> gradient);
  /// Nothing is added into any more; the sum travels until finish().
  void start();
  void finish();

 private:
  struct Sum {
    std::span<float> partial, gradient;
  };
  Group& group_;
  std::span<float> workspace_;
  std::size_t used_ = 0;
  std::vector<Sum> sums_;
  Work work_;
};

}  // namespace sprat::tensor
