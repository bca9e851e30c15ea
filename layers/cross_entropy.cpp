// Softmax cross entropy, by rows; the backward pass takes the exponentials again.
//
// A row's forward is three steps, between which ranks that have parts of the vocabulary join what
// they have: its highest logit, the sum of exponentials and the target's logit, the loss. Each rank
// adds up exponentials in pieces, which are joined as a tree, so that the sums of ranks have the
// bits of one rank's.
#include <array>
#include <cmath>
#include <limits>

#include "comm/base/check.hpp"
#include "comm/base/vector.hpp"
#include "layers/pieces.hpp"
#include "layers/vocabulary.hpp"
#include "sprat/layers.hpp"

namespace sprat::layers {
namespace {

constexpr int most_sums = 32;

/// What the layer's logits are of.
TokenRange checked_targets(const CrossEntropy& layer) {
  const TokenRange part = held_tokens(layer.vocabulary, layer.part);
  check_tokens("target", layer.vocabulary, layer.targets);
  require(layer.pieces >= 1, "a vocabulary is to be added up in ", layer.pieces,
          " pieces; there is at least one");
  return part;
}

SPRAT_INLINE float highest_of(int count, const float* logits) {
  return count == 0 ? -std::numeric_limits<float>::infinity() : maximum(count, logits);
}

/// Less the highest no exponential overflows, and the shares stay the same.
struct Exponentials {
  const float* logits;
  float highest;
  SPRAT_INLINE float operator()(int i) const { return fast_exp(logits[i] - highest); }
};

SPRAT_INLINE float sum_of_exponentials(int count, int pieces, const float* logits, float highest) {
  float sums[most_sums] = {};
  int made = 0;
  for (int piece = 0; piece < pieces; ++piece) {
    const int begin = piece_begin(count, pieces, piece);
    const int end = piece_begin(count, pieces, piece + 1);
    sums[made++] = sum(end - begin, Exponentials{logits + begin, highest});
    for (int joins = joins_after(piece, pieces); joins > 0; --joins) {
      --made;
      sums[made - 1] += sums[made];
    }
  }
  return sums[0];
}

/// By row, as cross_entropy_sums() gives them.
using TokenSums = std::array<float, 2>;

SPRAT_INLINE TokenSums token_sums(const TokenRange& part, int pieces, std::int32_t target,
                                  const float* logits, float highest) {
  return {sum_of_exponentials(part.count, pieces, logits, highest),
          contains(part, target) ? logits[target - part.first] : 0.0f};
}

void finish_row(const CrossEntropyRows& rows, std::size_t row, const TokenSums& sums) {
  rows.share[row] = 1.0f / sums[0];
  rows.loss[row] = std::log(double{sums[0]}) + double{rows.highest[row]} - double{sums[1]};
}

SPRAT_CLONES void highest_logits(int count, std::size_t rows, const float* logits, float* highest) {
  for (std::size_t row = 0; row < rows; ++row, logits += count) {
    highest[row] = highest_of(count, logits);
  }
}

SPRAT_CLONES void sums_of_rows(const CrossEntropy& layer, const TokenRange& part,
                               const float* logits, const float* highest, float* sums) {
  for (std::size_t row = 0; row < layer.targets.size(); ++row, logits += part.count) {
    const TokenSums own = token_sums(part, layer.pieces, layer.targets[row], logits, highest[row]);
    sums[2 * row] = own[0];
    sums[2 * row + 1] = own[1];
  }
}

/// All steps of a row at once: its logits are still in the cache when they are read again.
SPRAT_CLONES void losses(const CrossEntropy& layer, const TokenRange& all, const float* logits,
                         const CrossEntropyRows& rows) {
  for (std::size_t row = 0; row < layer.targets.size(); ++row, logits += all.count) {
    rows.highest[row] = highest_of(all.count, logits);
    finish_row(rows, row,
               token_sums(all, layer.pieces, layer.targets[row], logits, rows.highest[row]));
  }
}

SPRAT_CLONES void gradients(const CrossEntropy& layer, const TokenRange& part,
                            const CrossEntropyRows& rows, float scale, float* logits) {
  for (std::size_t row = 0; row < layer.targets.size(); ++row, logits += part.count) {
    const float highest = rows.highest[row], share = rows.share[row];
    for (int i = 0; i < part.count; ++i) {
      logits[i] = fast_exp(logits[i] - highest) * share;
    }
    if (contains(part, layer.targets[row])) {
      logits[layer.targets[row] - part.first] -= 1.0f;
    }
    for (int i = 0; i < part.count; ++i) {
      logits[i] *= scale;
    }
  }
}

}  // namespace

void cross_entropy_forward(const CrossEntropy& layer, const float* logits,
                           const CrossEntropyRows& rows) {
  const TokenRange part = checked_targets(layer);
  require(part.count == layer.vocabulary, "cross_entropy_forward() is of whole vocabularies, and ",
          "this layer has ", part.count, " tokens of ", layer.vocabulary,
          "; call cross_entropy_highest(), cross_entropy_sums() and cross_entropy_finish(), and ",
          "join what ranks have in between");
  losses(layer, part, logits, rows);
}

void cross_entropy_highest(const CrossEntropy& layer, const float* logits, float* highest) {
  const TokenRange part = checked_targets(layer);
  highest_logits(part.count, layer.targets.size(), logits, highest);
}

void cross_entropy_sums(const CrossEntropy& layer, const float* logits, const float* highest,
                        float* sums) {
  const TokenRange part = checked_targets(layer);
  sums_of_rows(layer, part, logits, highest, sums);
}

void cross_entropy_finish(std::span<const float> sums, const CrossEntropyRows& rows) {
  for (std::size_t row = 0; row < sums.size() / 2; ++row) {
    finish_row(rows, row, {sums[2 * row], sums[2 * row + 1]});
  }
}

void cross_entropy_backward_input(const CrossEntropy& layer, const CrossEntropyRows& rows,
                                  float scale, float* logits) {
  const TokenRange part = checked_targets(layer);
  gradients(layer, part, rows, scale, logits);
}

// A maximum, a difference, an exponential and a sum of each logit; then two products for the sum.
Cost cross_entropy_forward_cost(int vocabulary, std::size_t rows) noexcept {
  const std::uint64_t elements = std::uint64_t(vocabulary) * rows;
  return {.flops = 4 * elements, .bytes = sizeof(float) * elements + 20 * rows};
}
Cost cross_entropy_backward_input_cost(int vocabulary, std::size_t rows) noexcept {
  const std::uint64_t elements = std::uint64_t(vocabulary) * rows;
  return {.flops = 4 * elements, .bytes = 2 * sizeof(float) * elements + 12 * rows};
}

}  // namespace sprat::layers
