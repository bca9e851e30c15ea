// Causal attention in blocks (Rabe and Staats 2021; Dao et al., FlashAttention, 2022).
//
// A query's softmax is carried along its blocks of keys: the highest score so far, the sum of
// exponentials less that, and the weighted sum of values. Where a block has a higher score, sum and
// values are scaled down to it. The backward pass has the final two numbers of each query, so it
// takes a block's weights again as the forward pass had them.
//
// Order: sequences, heads, blocks of queries, blocks of keys, each first to last. A piece of a
// sequence has the blocks of the whole that lie in it, so what is carried along can be put down
// between two calls.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "comm/base/check.hpp"
#include "comm/base/vector.hpp"
#include "sprat/layers.hpp"

namespace sprat::layers {
namespace {

// Blocks are 64 queries by 256 keys: scores and their gradients (64 KiB each) stay in a
// second-level cache, products are large enough to run at the backend's rate, and what the block on
// the diagonal computes in vain is half of 64 keys for each query.

/// One sequence and head of a piece: where its first query, key, output and kept numbers are.
struct Head {
  std::ptrdiff_t query = 0, key = 0, out = 0, kept = 0;
  int sequence = 0, column = 0;
};
/// Some of its queries, and some of the keys that they look at.
struct Block {
  int query = 0, queries = 0, key = 0, keys = 0;  // first positions, counts
  bool first() const { return key == 0; }
};
/// From the piece's first query or key to the block's.
struct Distance {
  std::ptrdiff_t query = 0, key = 0;
};
Distance distance_to(const Block& block, const AttentionPiece& piece) {
  return {.query = block.query - piece.first_query, .key = block.key - piece.first_key};
}

float score_scale(const AttentionPiece& piece) {
  return 1.0f / std::sqrt(static_cast<float>(piece.head_width));
}

/// Keys of the block that the query's row of scores may look at.
SPRAT_INLINE int visible(const Block& block, int row) {
  return std::min(block.keys, block.query + row + 1 - block.key);
}

/// Of these keys and those that fill their last lanes: what a row computes.
SPRAT_INLINE int whole_lanes(const Block& block, int count) {
  return std::min(block.keys, (count + lanes - 1) / lanes * lanes);
}

/// Scores become exponentials, 0 behind the diagonal; totals and `out` are taken along.
SPRAT_CLONES void carry_softmax(const Block& block, float* scores, float* highest, float* total,
                                float* out, int out_stride, int width) {
  for (int row = 0; row < block.queries; ++row, scores += block.keys, out += out_stride) {
    const int count = visible(block, row);
    const float before = highest[row];
    const float here = maximum(count, scores);
    const float now = here > before ? here : before;
    const int end = whole_lanes(block, count);
    const float added = sum(end, [=](int i) {
      const float weight = fast_exp(scores[i] - now);
      scores[i] = i < count ? weight : 0.0f;
      return scores[i];
    });
    std::fill(scores + end, scores + block.keys, 0.0f);
    const float correction = fast_exp(before - now);
    total[row] = block.first() ? added : total[row] * correction + added;
    highest[row] = now;
    for (int i = 0; i < width && !block.first(); ++i) {
      out[i] *= correction;
    }
  }
}

/// Sums of exponentials become what the weighted values are multiplied by.
SPRAT_CLONES void finish_rows(int queries, float* share, float* out, int out_stride, int width) {
  for (int row = 0; row < queries; ++row, out += out_stride) {
    share[row] = 1.0f / share[row];
    for (int i = 0; i < width; ++i) {
      out[i] *= share[row];
    }
  }
}

/// Scores become the weights that the forward pass ended with.
SPRAT_CLONES void weights_again(const Block& block, const float* highest, const float* share,
                                float* scores) {
  for (int row = 0; row < block.queries; ++row, scores += block.keys) {
    const int count = visible(block, row);
    const float top = highest[row], part = share[row];
    for (int i = 0; i < block.keys; ++i) {
      const float weight = fast_exp(scores[i] - top) * part;
      scores[i] = i < count ? weight : 0.0f;
    }
  }
}

/// Gradients of weights become gradients of scores.
SPRAT_CLONES void score_gradients(const Block& block, const float* weights, const float* along,
                                  float* gradients) {
  for (int row = 0; row < block.queries; ++row, weights += block.keys, gradients += block.keys) {
    const float common = along[row];
    for (int i = 0; i < block.keys; ++i) {
      gradients[i] = weights[i] * (gradients[i] - common);
    }
  }
}

/// What a query's weights have in common of their gradients: sum of weight times gradient, which is
/// dout times out.
SPRAT_CLONES void common_gradients(int queries, int width, const float* out, const float* dout,
                                   int stride, float* along) {
  for (int row = 0; row < queries; ++row, out += stride, dout += stride) {
    along[row] = sum(width, [=](int i) { return out[i] * dout[i]; });
  }
}

/// What every query has with every key, times scale: rows as long as the block has keys.
struct Scores {
  ConstMatrix queries, keys;
  float scale = 1.0f;
  float* out = nullptr;
};
void multiply(const GemmBackend& gemm, const AttentionPiece& piece, const Block& block,
              const Scores& scores) {
  gemm.multiply({.rows = block.queries,
                 .columns = block.keys,
                 .inner = piece.head_width,
                 .alpha = scores.scale,
                 .a = scores.queries,
                 .b = {scores.keys.data, scores.keys.stride, true},
                 .out = {scores.out, block.keys}});
}

void forward_block(const GemmBackend& gemm, const AttentionPiece& piece,
                   const AttentionPieceForward& pass, const Head& head, const Block& block) {
  const Distance from = distance_to(block, piece);
  const std::ptrdiff_t key = head.key + from.key * pass.keys.stride;
  float* scores = pass.workspace.data();
  float* out = pass.out + head.out + from.query * pass.out_stride;
  multiply(gemm, piece, block,
           {.queries = {pass.queries.query + head.query + from.query * pass.queries.stride,
                        pass.queries.stride},
            .keys = {pass.keys.key + key, pass.keys.stride},
            .scale = score_scale(piece),
            .out = scores});
  float* highest = pass.rows.highest + head.kept + from.query;
  if (block.first()) {
    std::fill_n(highest, block.queries, -std::numeric_limits<float>::infinity());
  }
  carry_softmax(block, scores, highest, pass.rows.share + head.kept + from.query, out,
                pass.out_stride, piece.head_width);
  gemm.multiply({.rows = block.queries,
                 .columns = piece.head_width,
                 .inner = block.keys,
                 .a = {scores, block.keys},
                 .b = {pass.keys.value + key, pass.keys.stride},
                 .beta = block.first() ? 0.0f : 1.0f,
                 .out = {out, pass.out_stride}});
}

/// Weights and gradients of scores of a block, in the workspace.
struct BlockGradients {
  float* weights;
  float* scores;
};
BlockGradients block_gradients(const GemmBackend& gemm, const AttentionPiece& piece,
                               const AttentionPieceBackward& pass, const Head& head,
                               const Block& block) {
  const Distance from = distance_to(block, piece);
  const std::ptrdiff_t key = head.key + from.key * pass.keys.stride;
  const std::ptrdiff_t kept = head.kept + from.query;
  float* along = pass.workspace.data();
  float* weights = along + attention_block;
  float* scores = weights + std::ptrdiff_t{block.queries} * block.keys;
  multiply(gemm, piece, block,
           {.queries = {pass.queries.query + head.query + from.query * pass.queries.stride,
                        pass.queries.stride},
            .keys = {pass.keys.key + key, pass.keys.stride},
            .scale = score_scale(piece),
            .out = weights});
  weights_again(block, pass.rows.highest + kept, pass.rows.share + kept, weights);
  multiply(gemm, piece, block,
           {.queries = {pass.dout + head.out + from.query * pass.out_stride, pass.out_stride},
            .keys = {pass.keys.value + key, pass.keys.stride},
            .out = scores});
  score_gradients(block, weights, along, scores);
  return {weights, scores};
}

/// Where the gradients of a key and of its value lie, `key` rows behind the piece's first.
std::ptrdiff_t gradient_row(const AttentionPieceBackward& pass, const Head& head,
                            std::ptrdiff_t key) {
  const std::ptrdiff_t row = std::ptrdiff_t{head.sequence} * pass.dkeys.sequence_rows + key;
  return row * pass.dkeys.stride + head.column;
}

/// What stands in the gradients before a pass.
enum class Before { nothing, gradients };

void backward_block(const GemmBackend& gemm, const AttentionPiece& piece,
                    const AttentionPieceBackward& pass, const Head& head, const Block& block,
                    Before before) {
  const auto [weights, scores] = block_gradients(gemm, piece, pass, head, block);
  const Distance from = distance_to(block, piece);
  const int query_stride = pass.queries.stride;
  const std::ptrdiff_t query = head.query + from.query * query_stride;
  const std::ptrdiff_t key = gradient_row(pass, head, from.key);
  const float* dout = pass.dout + head.out + from.query * pass.out_stride;
  MatrixProduct by_key{.rows = block.keys,
                       .columns = piece.head_width,
                       .inner = block.queries,
                       .a = {weights, block.keys, true},
                       .b = {dout, pass.out_stride},
                       .beta = 1.0f,
                       .out = {pass.dkeys.value + key, pass.dkeys.stride}};
  gemm.multiply(by_key);
  by_key.alpha = score_scale(piece);
  by_key.a.data = scores;
  by_key.b = {pass.queries.query + query, query_stride};
  by_key.out.data = pass.dkeys.key + key;
  gemm.multiply(by_key);
  gemm.multiply({.rows = block.queries,
                 .columns = piece.head_width,
                 .inner = block.keys,
                 .alpha = score_scale(piece),
                 .a = {scores, block.keys},
                 .b = {pass.keys.key + head.key + from.key * pass.keys.stride, pass.keys.stride},
                 .beta = before == Before::nothing && block.first() ? 0.0f : 1.0f,
                 .out = {pass.dquery + query, query_stride}});
}

/// Rows of keys and values take a share from every block of queries after them, so they begin at 0;
/// rows of queries are overwritten by their first block.
void clear_gradients(const AttentionPiece& piece, const AttentionPieceBackward& pass,
                     const Head& head) {
  for (int key = 0; key < piece.keys; ++key) {
    const std::ptrdiff_t row = gradient_row(pass, head, key);
    std::fill_n(pass.dkeys.key + row, piece.head_width, 0.0f);
    std::fill_n(pass.dkeys.value + row, piece.head_width, 0.0f);
  }
}

/// Calls visit(head) for every sequence and head, in order.
template <class Pass, class Visit>
void for_each_head(const AttentionPiece& piece, const Pass& pass, const Visit& visit) {
  for (int sequence = 0; sequence < piece.sequences; ++sequence) {
    const std::ptrdiff_t query = std::ptrdiff_t{sequence} * pass.queries.sequence_rows;
    const std::ptrdiff_t key = std::ptrdiff_t{sequence} * pass.keys.sequence_rows;
    for (int head = 0; head < piece.heads; ++head) {
      const std::ptrdiff_t column = std::ptrdiff_t{head} * piece.head_width;
      visit(Head{.query = query * pass.queries.stride + column,
                 .key = key * pass.keys.stride + column,
                 .out = query * pass.out_stride + column,
                 .kept = query * piece.heads + std::ptrdiff_t{head} * pass.queries.sequence_rows,
                 .sequence = sequence,
                 .column = int(column)});
    }
  }
}

/// The end of the block of `size` positions in which `position` lies, or `end` before that. Blocks
/// are counted from the sequence's first position, so those of a piece are those of the whole.
int block_end(int position, int size, int end) {
  return std::min((position / size + 1) * size, end);
}

/// Calls visit(first query, how many) for the blocks of queries.
template <class Visit>
void for_each_query_block(const AttentionPiece& piece, const Visit& visit) {
  const int end = piece.first_query + piece.queries;
  for (int query = piece.first_query; query < end;) {
    const int next = block_end(query, attention_block, end);
    visit(query, next - query);
    query = next;
  }
}

/// Blocks of keys for these queries, up to the one on the diagonal.
template <class Visit>
void for_each_block(const AttentionPiece& piece, int query, int queries, const Visit& visit) {
  const int end = std::min(query + queries, piece.first_key + piece.keys);
  for (int key = piece.first_key; key < end;) {
    const int next = block_end(key, attention_keys, end);
    visit(Block{.query = query, .queries = queries, .key = key, .keys = next - key});
    key = next;
  }
}

void forward(const GemmBackend& gemm, const AttentionPiece& piece,
             const AttentionPieceForward& pass) {
  const int keys_end = piece.first_key + piece.keys;
  for_each_head(piece, pass, [&](const Head& head) {
    for_each_query_block(piece, [&](int query, int queries) {
      for_each_block(piece, query, queries,
                     [&](const Block& block) { forward_block(gemm, piece, pass, head, block); });
      // Keys that begin behind these queries find them finished.
      if (query + queries > piece.first_key && query + queries <= keys_end) {
        const std::ptrdiff_t row = query - piece.first_query;
        finish_rows(queries, pass.rows.share + head.kept + row,
                    pass.out + head.out + row * pass.out_stride, pass.out_stride, piece.head_width);
      }
    });
  });
}

void backward(const GemmBackend& gemm, const AttentionPiece& piece,
              const AttentionPieceBackward& pass, Before before) {
  for_each_head(piece, pass, [&](const Head& head) {
    if (before == Before::nothing) {
      clear_gradients(piece, pass, head);
    }
    for_each_query_block(piece, [&](int query, int queries) {
      const std::ptrdiff_t row =
          head.out + std::ptrdiff_t{query - piece.first_query} * pass.out_stride;
      common_gradients(queries, piece.head_width, pass.out + row, pass.dout + row, pass.out_stride,
                       pass.workspace.data());
      for_each_block(piece, query, queries, [&](const Block& block) {
        backward_block(gemm, piece, pass, head, block, before);
      });
    });
  });
}

AttentionPiece whole_of(const AttentionShape& shape) {
  return {.sequences = shape.sequences,
          .heads = shape.heads,
          .head_width = shape.head_width,
          .queries = shape.length,
          .keys = shape.length};
}
AttentionQueries queries_of(const AttentionShape& shape, const AttentionInput& input) {
  return {.query = input.query, .stride = input.stride, .sequence_rows = shape.length};
}
AttentionKeys keys_of(const AttentionShape& shape, const AttentionInput& input) {
  return {.key = input.key,
          .value = input.value,
          .stride = input.stride,
          .sequence_rows = shape.length};
}

void check_workspace(std::size_t given, std::size_t wanted) {
  require(given >= wanted, "attention has a workspace of ", given, " elements and needs ", wanted,
          "; attention_forward_workspace() and attention_backward_workspace() say how many");
}

/// Elements of the scores of all blocks, of one sequence and head.
std::uint64_t score_count(const AttentionPiece& piece) {
  std::uint64_t count = 0;
  for_each_query_block(piece, [&](int query, int queries) {
    const int end = std::min(query + queries, piece.first_key + piece.keys);
    count += std::uint64_t(queries) * std::uint64_t(std::max(end - piece.first_key, 0));
  });
  return count;
}

/// `products` are of a query and a key each, `operations` those beside them; `matrices` are as many
/// of queries as of keys.
Cost cost_of(const AttentionPiece& piece, int products, int operations, int matrices) {
  const std::uint64_t heads = std::uint64_t(piece.sequences) * std::uint64_t(piece.heads);
  const std::uint64_t width = std::uint64_t(piece.head_width);
  const std::uint64_t each = 2 * std::uint64_t(products) * width + std::uint64_t(operations);
  const std::uint64_t rows = std::uint64_t(piece.queries) + std::uint64_t(piece.keys);
  return {.flops = heads * score_count(piece) * each,
          .bytes = sizeof(float) * heads *
                   (rows * width * std::uint64_t(matrices) + 2 * std::uint64_t(piece.queries))};
}

}  // namespace

void attention_forward_piece(const GemmBackend& gemm, const AttentionPiece& piece,
                             const AttentionPieceForward& pass) {
  check_workspace(pass.workspace.size(), attention_forward_workspace(piece));
  const int end = piece.first_key + piece.keys;
  require(piece.first_key % attention_keys == 0 &&
              (end % attention_keys == 0 || end >= piece.first_query + piece.queries),
          "a forward of attention over keys from position ", piece.first_key, " up to ", end,
          " for queries up to ", piece.first_query + piece.queries,
          " would cut a block of keys; begin and end at multiples of ", attention_keys,
          ", or end where the queries do");
  forward(gemm, piece, pass);
}

void attention_forward(const GemmBackend& gemm, const AttentionShape& shape,
                       const AttentionForward& pass) {
  attention_forward_piece(gemm, whole_of(shape),
                          {.queries = queries_of(shape, pass.input),
                           .keys = keys_of(shape, pass.input),
                           .out = pass.out,
                           .out_stride = pass.out_stride,
                           .rows = pass.rows,
                           .workspace = pass.workspace});
}

void attention_backward_piece(const GemmBackend& gemm, const AttentionPiece& piece,
                              const AttentionPieceBackward& pass) {
  check_workspace(pass.workspace.size(), attention_backward_workspace(piece));
  backward(gemm, piece, pass, Before::gradients);
}

void attention_backward_input(const GemmBackend& gemm, const AttentionShape& shape,
                              const AttentionBackward& pass) {
  check_workspace(pass.workspace.size(), attention_backward_workspace(shape));
  backward(gemm, whole_of(shape),
           {.queries = queries_of(shape, pass.input),
            .keys = keys_of(shape, pass.input),
            .out = pass.out,
            .dout = pass.dout,
            .out_stride = pass.out_stride,
            .rows = pass.rows,
            .dquery = pass.dquery,
            .dkeys = {.key = pass.dkey,
                      .value = pass.dvalue,
                      .stride = pass.input.stride,
                      .sequence_rows = shape.length},
            .workspace = pass.workspace},
           Before::nothing);
}

std::size_t attention_kept_count(const AttentionShape& shape) noexcept {
  return std::size_t{2} * std::size_t(shape.sequences) * std::size_t(shape.heads) *
         std::size_t(shape.length);
}
std::size_t attention_forward_workspace(const AttentionPiece& piece) noexcept {
  return std::size_t(std::min(piece.queries, attention_block)) *
         std::size_t(std::min(piece.keys, attention_keys));
}
std::size_t attention_backward_workspace(const AttentionPiece& piece) noexcept {
  return attention_block + 2 * attention_forward_workspace(piece);
}
std::size_t attention_forward_workspace(const AttentionShape& shape) noexcept {
  return attention_forward_workspace(whole_of(shape));
}
std::size_t attention_backward_workspace(const AttentionShape& shape) noexcept {
  return attention_backward_workspace(whole_of(shape));
}

// Forward: scores and values; a maximum, a difference, an exponential, a sum. Reads three matrices
// and writes one. Backward: scores again and four more products; the weights again (a difference,
// an exponential, a product) and their gradients (a difference, a product). Reads five, writes
// three. Half of them are of queries, half of keys.
Cost attention_forward_cost(const AttentionPiece& piece) noexcept {
  return cost_of(piece, 2, 4, 2);
}
Cost attention_backward_input_cost(const AttentionPiece& piece) noexcept {
  return cost_of(piece, 5, 5, 4);
}
Cost attention_forward_cost(const AttentionShape& shape) noexcept {
  return attention_forward_cost(whole_of(shape));
}
Cost attention_backward_input_cost(const AttentionShape& shape) noexcept {
  return attention_backward_input_cost(whole_of(shape));
}

}  // namespace sprat::layers
