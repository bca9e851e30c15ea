// Causal attention in blocks (Rabe and Staats 2021; Dao et al., FlashAttention, 2022).
//
// A query's softmax is carried along its blocks of keys: the highest score so far, the sum of
// exponentials less that, and the weighted sum of values. Where a block has a higher score, sum and
// values are scaled down to it. The backward pass has the final two numbers of each query, so it
// takes a block's weights again as the forward pass had them.
//
// Order: sequences, heads, blocks of queries, blocks of keys, each first to last.
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

/// One sequence and head: offsets of its row 0.
struct Head {
  std::ptrdiff_t input = 0, out = 0, kept = 0;
};
/// Some of its queries, and some of the keys that they look at.
struct Block {
  int query = 0, queries = 0, key = 0, keys = 0;  // first rows, counts
  bool first() const { return key == 0; }
};

float score_scale(const AttentionShape& shape) {
  return 1.0f / std::sqrt(static_cast<float>(shape.head_width));
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
void multiply(const GemmBackend& gemm, const AttentionShape& shape, const Block& block,
              const Scores& scores) {
  gemm.multiply({.rows = block.queries,
                 .columns = block.keys,
                 .inner = shape.head_width,
                 .alpha = scores.scale,
                 .a = scores.queries,
                 .b = {scores.keys.data, scores.keys.stride, true},
                 .out = {scores.out, block.keys}});
}

void forward_block(const GemmBackend& gemm, const AttentionShape& shape,
                   const AttentionForward& pass, const Head& head, const Block& block) {
  const int stride = pass.input.stride, width = shape.head_width;
  const std::ptrdiff_t query = head.input + std::ptrdiff_t{block.query} * stride;
  const std::ptrdiff_t key = head.input + std::ptrdiff_t{block.key} * stride;
  float* scores = pass.workspace.data();
  float* out = pass.out + head.out + std::ptrdiff_t{block.query} * pass.out_stride;
  multiply(gemm, shape, block,
           {.queries = {pass.input.query + query, stride},
            .keys = {pass.input.key + key, stride},
            .scale = score_scale(shape),
            .out = scores});
  const std::ptrdiff_t kept = head.kept + block.query;
  carry_softmax(block, scores, pass.rows.highest + kept, pass.rows.share + kept, out,
                pass.out_stride, width);
  gemm.multiply({.rows = block.queries,
                 .columns = width,
                 .inner = block.keys,
                 .a = {scores, block.keys},
                 .b = {pass.input.value + key, stride},
                 .beta = block.first() ? 0.0f : 1.0f,
                 .out = {out, pass.out_stride}});
}

/// Weights and gradients of scores of a block, in the workspace.
struct BlockGradients {
  float* weights;
  float* scores;
};
BlockGradients block_gradients(const GemmBackend& gemm, const AttentionShape& shape,
                               const AttentionBackward& pass, const Head& head,
                               const Block& block) {
  const int stride = pass.input.stride;
  const std::ptrdiff_t query = head.input + std::ptrdiff_t{block.query} * stride;
  const std::ptrdiff_t key = head.input + std::ptrdiff_t{block.key} * stride;
  const std::ptrdiff_t kept = head.kept + block.query;
  float* along = pass.workspace.data();
  float* weights = along + attention_block;
  float* scores = weights + std::ptrdiff_t{block.queries} * block.keys;
  const float* dout = pass.dout + head.out + std::ptrdiff_t{block.query} * pass.out_stride;
  multiply(gemm, shape, block,
           {.queries = {pass.input.query + query, stride},
            .keys = {pass.input.key + key, stride},
            .scale = score_scale(shape),
            .out = weights});
  weights_again(block, pass.rows.highest + kept, pass.rows.share + kept, weights);
  multiply(gemm, shape, block,
           {.queries = {dout, pass.out_stride},
            .keys = {pass.input.value + key, stride},
            .out = scores});
  score_gradients(block, weights, along, scores);
  return {weights, scores};
}

void backward_block(const GemmBackend& gemm, const AttentionShape& shape,
                    const AttentionBackward& pass, const Head& head, const Block& block) {
  const auto [weights, scores] = block_gradients(gemm, shape, pass, head, block);
  const int stride = pass.input.stride, width = shape.head_width;
  const std::ptrdiff_t query = head.input + std::ptrdiff_t{block.query} * stride;
  const std::ptrdiff_t key = head.input + std::ptrdiff_t{block.key} * stride;
  const float* dout = pass.dout + head.out + std::ptrdiff_t{block.query} * pass.out_stride;
  MatrixProduct by_key{.rows = block.keys,
                       .columns = width,
                       .inner = block.queries,
                       .a = {weights, block.keys, true},
                       .b = {dout, pass.out_stride},
                       .beta = 1.0f,
                       .out = {pass.dvalue + key, stride}};
  gemm.multiply(by_key);
  by_key.alpha = score_scale(shape);
  by_key.a.data = scores;
  by_key.b = {pass.input.query + query, stride};
  by_key.out.data = pass.dkey + key;
  gemm.multiply(by_key);
  gemm.multiply({.rows = block.queries,
                 .columns = width,
                 .inner = block.keys,
                 .alpha = score_scale(shape),
                 .a = {scores, block.keys},
                 .b = {pass.input.key + key, stride},
                 .beta = block.first() ? 0.0f : 1.0f,
                 .out = {pass.dquery + query, stride}});
}

/// Rows of keys and values take a share from every block of queries after them, so they begin at 0;
/// rows of queries are overwritten by their first block.
void clear_gradients(const AttentionShape& shape, const AttentionBackward& pass, const Head& head) {
  for (int key = 0; key < shape.length; ++key) {
    const std::ptrdiff_t row = head.input + std::ptrdiff_t{key} * pass.input.stride;
    std::fill_n(pass.dkey + row, shape.head_width, 0.0f);
    std::fill_n(pass.dvalue + row, shape.head_width, 0.0f);
  }
}

/// Calls visit(head) for every sequence and head, in order.
template <class Visit>
void for_each_head(const AttentionShape& shape, int input_stride, int out_stride,
                   const Visit& visit) {
  for (int sequence = 0; sequence < shape.sequences; ++sequence) {
    const std::ptrdiff_t row = std::ptrdiff_t{sequence} * shape.length;
    for (int head = 0; head < shape.heads; ++head) {
      const std::ptrdiff_t column = std::ptrdiff_t{head} * shape.head_width;
      visit(Head{.input = row * input_stride + column,
                 .out = row * out_stride + column,
                 .kept = row * shape.heads + std::ptrdiff_t{head} * shape.length});
    }
  }
}

/// Blocks of the queries from `query` on, up to the one on the diagonal.
template <class Visit>
void for_each_block(const AttentionShape& shape, int query, const Visit& visit) {
  const int queries = std::min(attention_block, shape.length - query);
  const int end = query + queries;
  for (int key = 0; key < end; key += attention_keys) {
    visit(Block{.query = query,
                .queries = queries,
                .key = key,
                .keys = std::min(attention_keys, end - key)});
  }
}

void check_workspace(std::size_t given, std::size_t wanted) {
  require(given >= wanted, "attention has a workspace of ", given, " elements and needs ", wanted,
          "; attention_forward_workspace() and attention_backward_workspace() say how many");
}

/// Elements of the scores of all blocks, of one sequence and head.
std::uint64_t score_count(const AttentionShape& shape) {
  std::uint64_t count = 0;
  for (int query = 0; query < shape.length; query += attention_block) {
    const int end = std::min(query + attention_block, shape.length);
    count += std::uint64_t(end - query) * std::uint64_t(end);
  }
  return count;
}

/// `products` are of a query and a key each, `operations` those beside them.
Cost cost_of(const AttentionShape& shape, int products, int operations, int matrices) {
  const std::uint64_t heads = std::uint64_t(shape.sequences) * std::uint64_t(shape.heads);
  const std::uint64_t width = std::uint64_t(shape.head_width);
  const std::uint64_t each = 2 * std::uint64_t(products) * width + std::uint64_t(operations);
  return {.flops = heads * score_count(shape) * each,
          .bytes = sizeof(float) *
                   (heads * std::uint64_t(shape.length) * width * std::uint64_t(matrices) +
                    attention_kept_count(shape))};
}

}  // namespace

void attention_forward(const GemmBackend& gemm, const AttentionShape& shape,
                       const AttentionForward& pass) {
  check_workspace(pass.workspace.size(), attention_forward_workspace(shape));
  std::fill_n(pass.rows.highest, attention_kept_count(shape) / 2,
              -std::numeric_limits<float>::infinity());
  for_each_head(shape, pass.input.stride, pass.out_stride, [&](const Head& head) {
    for (int query = 0; query < shape.length; query += attention_block) {
      for_each_block(shape, query,
                     [&](const Block& block) { forward_block(gemm, shape, pass, head, block); });
      finish_rows(std::min(attention_block, shape.length - query),
                  pass.rows.share + head.kept + query,
                  pass.out + head.out + std::ptrdiff_t{query} * pass.out_stride, pass.out_stride,
                  shape.head_width);
    }
  });
}

void attention_backward_input(const GemmBackend& gemm, const AttentionShape& shape,
                              const AttentionBackward& pass) {
  check_workspace(pass.workspace.size(), attention_backward_workspace(shape));
  for_each_head(shape, pass.input.stride, pass.out_stride, [&](const Head& head) {
    clear_gradients(shape, pass, head);
    for (int query = 0; query < shape.length; query += attention_block) {
      const std::ptrdiff_t row = head.out + std::ptrdiff_t{query} * pass.out_stride;
      common_gradients(std::min(attention_block, shape.length - query), shape.head_width,
                       pass.out + row, pass.dout + row, pass.out_stride, pass.workspace.data());
      for_each_block(shape, query,
                     [&](const Block& block) { backward_block(gemm, shape, pass, head, block); });
    }
  });
}

std::size_t attention_kept_count(const AttentionShape& shape) noexcept {
  return std::size_t{2} * std::size_t(shape.sequences) * std::size_t(shape.heads) *
         std::size_t(shape.length);
}
std::size_t attention_forward_workspace(const AttentionShape& shape) noexcept {
  return std::size_t(std::min(shape.length, attention_block)) *
         std::size_t(std::min(shape.length, attention_keys));
}
std::size_t attention_backward_workspace(const AttentionShape& shape) noexcept {
  return attention_block + 2 * attention_forward_workspace(shape);
}

// Forward: scores and values; a maximum, a difference, an exponential, a sum. Reads three matrices
// and writes one. Backward: scores again and four more products; the weights again (a difference,
// an exponential, a product) and their gradients (a difference, a product). Reads five, writes
// three.
Cost attention_forward_cost(const AttentionShape& shape) noexcept {
  return cost_of(shape, 2, 4, 4);
}
Cost attention_backward_input_cost(const AttentionShape& shape) noexcept {
  return cost_of(shape, 5, 5, 8);
}

}  // namespace sprat::layers
