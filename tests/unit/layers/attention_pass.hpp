// One attention of random values, forward and backward, and the same by its definition in double
// precision, with the magnitudes that bounds are made of.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "sprat/layers.hpp"
#include "tests/unit/layers/roundings.hpp"

namespace sprat::layers_test::attention {

using layers::AttentionShape;

inline constexpr float unwritten = std::numeric_limits<float>::quiet_NaN();

/// Query, key and value beside each other in a row, as a linear layer writes them, and all that
/// passes write.
struct Pass {
  explicit Pass(const AttentionShape& one)
      : shape(one),
        width(one.heads * one.head_width),
        rows(one.sequences * one.length),
        qkv(random(static_cast<std::size_t>(3 * rows * width), 1)),
        dout(random(static_cast<std::size_t>(rows * width), 2)) {
    out.assign(dout.size(), unwritten);
    dqkv.assign(qkv.size(), unwritten);
    highest.assign(layers::attention_kept_count(shape) / 2, unwritten);
    share = highest;
  }
  layers::AttentionInput input() const {
    return {qkv.data(), qkv.data() + width, qkv.data() + 2 * width, 3 * width};
  }
  layers::AttentionForward forward(std::span<float> workspace) {
    return {.input = input(),
            .out = out.data(),
            .out_stride = width,
            .rows = {highest.data(), share.data()},
            .workspace = workspace};
  }
  layers::AttentionBackward backward(std::span<float> workspace) {
    return {.input = input(),
            .out = out.data(),
            .dout = dout.data(),
            .out_stride = width,
            .rows = {highest.data(), share.data()},
            .dquery = dqkv.data(),
            .dkey = dqkv.data() + width,
            .dvalue = dqkv.data() + 2 * width,
            .workspace = workspace};
  }
  void run(const GemmBackend& gemm) {
    std::vector<float> workspace(layers::attention_forward_workspace(shape), unwritten);
    layers::attention_forward(gemm, shape, forward(workspace));
    workspace.assign(layers::attention_backward_workspace(shape), unwritten);
    layers::attention_backward_input(gemm, shape, backward(workspace));
  }
  int place(int row, int part, int column) const { return (row * 3 + part) * width + column; }

  AttentionShape shape;
  int width, rows;
  std::vector<float> qkv, dout;
  std::vector<float> out, dqkv, highest, share;
};

/// One sequence and head by the definition: the output's rows from queries, keys and values, `size`
/// elements a row. T is double, or complex for a slope.
template <class T>
std::vector<T> attend(const std::array<std::vector<T>, 3>& qkv, int size) {
  const std::size_t length = qkv[0].size() / std::size_t(size);
  std::vector<T> out(qkv[0].size());
  for (std::size_t query = 0; query < length; ++query) {
    T total = 0;
    for (std::size_t key = 0; key <= query; ++key) {
      T score = 0;
      for (int i = 0; i < size; ++i) {
        score += qkv[0][query * size + i] * qkv[1][key * size + i];
      }
      const T weight = std::exp(score / std::sqrt(size));
      total += weight;
      for (int i = 0; i < size; ++i) {
        out[query * size + i] += weight * qkv[2][key * size + i];
      }
    }
    for (int i = 0; i < size; ++i) {
      out[query * size + i] /= total;
    }
  }
  return out;
}

/// A head of a pass in double precision, and the magnitudes that roundings are relative to.
class Exact {
 public:
  Exact(const Pass& pass, int sequence, int head)
      : length_(pass.shape.length), size_(pass.shape.head_width) {
    for (int row = 0; row < length_; ++row) {
      const int at = sequence * length_ + row;
      for (int i = 0; i < size_; ++i) {
        const int column = head * size_ + i;
        for (int part = 0; part < 3; ++part) {
          qkv[part].push_back(double{pass.qkv[pass.place(at, part, column)]});
        }
        dout.push_back(double{pass.dout[at * pass.width + column]});
      }
    }
    weigh();
  }

  /// Roundings of a weight, relative to itself. A score of `size` terms errs by size + 3 of its
  /// magnitude (the scale is a root, a division and a product), the difference in an exponential by
  /// 2 of it; an exponential by its own, here and, with a product, for every block that a sum is
  /// carried over. All of this stands above and below; the sum and the share are rounded below, and
  /// what is multiplied by the share above.
  double weight_roundings() const {
    const double carried = 2 * largest_score_ + exponential_roundings + 1;
    const double one_side =
        (size_ + 5) * largest_score_ + exponential_roundings + blocks() * carried;
    return 2 * one_side + sum_roundings(std::min(length_, layers::attention_keys)) + blocks() + 2;
  }
  /// Of the output: a weight's, and additions of all terms and blocks.
  double out_roundings() const { return weight_roundings() + length_ + blocks() + 1; }
  /// Of gradients: a weight's; the common part's, which is a sum of the output's; a difference and
  /// two products; then a product over keys or queries, block by block, with the scale.
  double gradient_roundings() const {
    const double score = weight_roundings() + out_roundings() + size_ + sum_roundings(size_) + 4;
    return score + length_ + length_ / layers::attention_block + blocks() + 4;
  }

  std::array<std::vector<double>, 3> qkv;
  std::vector<double> dout, log_sums, out_magnitude;
  /// Magnitudes of what the gradients of query, key and value are summed from.
  std::array<std::vector<double>, 3> gradient_magnitude;

 private:
  int blocks() const { return (length_ - 1) / layers::attention_keys + 1; }

  double dot(const std::vector<double>& a, int row, const std::vector<double>& b, int other,
             bool magnitude) const {
    double sum = 0;
    for (int i = 0; i < size_; ++i) {
      const double term = a[row * size_ + i] * b[other * size_ + i];
      sum += magnitude ? std::abs(term) : term;
    }
    return sum;
  }

  void weigh() {
    out_magnitude.assign(dout.size(), 0.0);
    gradient_magnitude.fill(out_magnitude);
    for (int query = 0; query < length_; ++query) {
      std::vector<double> weights;
      double total = 0;
      for (int key = 0; key <= query; ++key) {
        weights.push_back(std::exp(dot(qkv[0], query, qkv[1], key, false) / std::sqrt(size_)));
        total += weights.back();
        largest_score_ =
            std::max(largest_score_, dot(qkv[0], query, qkv[1], key, true) / std::sqrt(size_));
      }
      log_sums.push_back(std::log(total));
      double common = 0;
      for (int key = 0; key <= query; ++key) {
        weights[key] /= total;
        common += weights[key] * dot(dout, query, qkv[2], key, true);
      }
      add_magnitudes(query, weights, common);
    }
  }

  void add_magnitudes(int query, const std::vector<double>& weights, double common) {
    for (int key = 0; key <= query; ++key) {
      const double score = weights[key] * (dot(dout, query, qkv[2], key, true) + common);
      for (int i = 0; i < size_; ++i) {
        const int q = query * size_ + i, k = key * size_ + i;
        out_magnitude[q] += weights[key] * std::abs(qkv[2][k]);
        gradient_magnitude[0][q] += score / std::sqrt(size_) * std::abs(qkv[1][k]);
        gradient_magnitude[1][k] += score / std::sqrt(size_) * std::abs(qkv[0][q]);
        gradient_magnitude[2][k] += weights[key] * std::abs(dout[q]);
      }
    }
  }

  int length_, size_;
  double largest_score_ = 0;
};

}  // namespace sprat::layers_test::attention
