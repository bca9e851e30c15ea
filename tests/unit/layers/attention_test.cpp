// Attention in blocks, beside attention by its definition in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "sprat/error.hpp"
#include "sprat/layers.hpp"

namespace sprat::attention_test {
namespace {

using layers::AttentionShape;

constexpr double epsilon = std::numeric_limits<float>::epsilon();
constexpr float unwritten = std::numeric_limits<float>::quiet_NaN();

std::vector<AttentionShape> shapes() {
  std::vector<AttentionShape> all;
  for (const int length : {1, 3, 63, 64, 65, 130}) {
    all.push_back({.sequences = 2, .length = length, .heads = 2, .head_width = 8});
  }
  all.push_back({.sequences = 1, .length = 200, .heads = 1, .head_width = 17});
  return all;
}

/// Query, key and value beside each other in a row, as a linear layer writes them, and all that
/// passes write.
struct Pass {
  explicit Pass(const AttentionShape& one, float scale = 1.0f)
      : shape(one), width(one.heads * one.head_width), rows(one.sequences * one.length) {
    std::mt19937 generator(7);
    for (auto* values : {&qkv, &dout}) {
      values->resize(static_cast<std::size_t>(values == &qkv ? 3 * rows * width : rows * width));
      for (float& value : *values) {
        value = static_cast<float>(static_cast<std::int32_t>(generator())) * 0x1p-30f * scale;
      }
    }
    out.assign(dout.size(), unwritten);
    dqkv.assign(qkv.size(), unwritten);
    highest.assign(layers::attention_kept_count(shape) / 2, unwritten);
    share = highest;
  }
  layers::AttentionInput input() const {
    return {qkv.data(), qkv.data() + width, qkv.data() + 2 * width, 3 * width};
  }
  void run(const GemmBackend& gemm) {
    std::vector<float> workspace(layers::attention_forward_workspace(shape), unwritten);
    layers::attention_forward(gemm, shape,
                              {.input = input(),
                               .out = out.data(),
                               .out_stride = width,
                               .rows = {highest.data(), share.data()},
                               .workspace = workspace});
    workspace.assign(layers::attention_backward_workspace(shape), unwritten);
    layers::attention_backward_input(gemm, shape,
                                     {.input = input(),
                                      .out = out.data(),
                                      .dout = dout.data(),
                                      .out_stride = width,
                                      .rows = {highest.data(), share.data()},
                                      .dquery = dqkv.data(),
                                      .dkey = dqkv.data() + width,
                                      .dvalue = dqkv.data() + 2 * width,
                                      .workspace = workspace});
  }
  int place(int row, int part, int column) const { return (row * 3 + part) * width + column; }

  AttentionShape shape;
  int width, rows;
  std::vector<float> qkv, dout, out, dqkv, highest, share;
};

/// One sequence and head by the definition, in double precision.
class Exact {
 public:
  Exact(const Pass& pass, const std::vector<double>& qkv, int sequence, int head)
      : pass_(pass), qkv_(qkv), first_(sequence * pass.shape.length), column_(head * size()) {
    for (int query = 0; query < length(); ++query) {
      std::vector<double> row;
      double total = 0;
      for (int key = 0; key <= query; ++key) {
        double score = 0, magnitude = 0;
        for (int i = 0; i < size(); ++i) {
          score += at(query, 0, i) * at(key, 1, i);
          magnitude += std::abs(at(query, 0, i) * at(key, 1, i));
        }
        row.push_back(std::exp(score / std::sqrt(size())));
        total += row.back();
        largest_score_ = std::max(largest_score_, magnitude / std::sqrt(size()));
      }
      for (double& weight : row) {
        weight /= total;
      }
      log_sums_.push_back(std::log(total));
      weights_.push_back(std::move(row));
    }
  }
  int length() const { return pass_.shape.length; }
  int size() const { return pass_.shape.head_width; }
  double at(int row, int part, int i) const {
    return qkv_[static_cast<std::size_t>(pass_.place(first_ + row, part, column_ + i))];
  }
  double dout(int row, int i) const {
    return double{pass_.dout[(first_ + row) * pass_.width + column_ + i]};
  }
  double weight(int query, int key) const { return weights_[query][key]; }
  double log_sum(int query) const { return log_sums_[query]; }
  double out(int query, int i, bool magnitude = false) const {
    double sum = 0;
    for (int key = 0; key <= query; ++key) {
      const double value = at(key, 2, i);
      sum += weight(query, key) * (magnitude ? std::abs(value) : value);
    }
    return sum;
  }
  /// sum of out * dout: what the gradients are the slope of.
  double along() const {
    double sum = 0;
    for (int query = 0; query < length(); ++query) {
      for (int i = 0; i < size(); ++i) {
        sum += out(query, i) * dout(query, i);
      }
    }
    return sum;
  }
  /// How many epsilons a weight may err by, relative to itself. A score of `size` terms errs by so
  /// many roundings of its magnitude, and scaling, subtracting and correcting by three more; an
  /// exponential by 2 ulp, one for the weight and one for each block it is carried over; sums of
  /// weights by one for each lane's term, and the share by one more.
  double weight_roundings() const {
    const int blocks = length() / layers::attention_block + 1;
    return 2 * ((size() + 3 * blocks) * largest_score_ + 4 * (blocks + 1) + length() / 16.0 + 8);
  }

 private:
  const Pass& pass_;
  const std::vector<double>& qkv_;
  int first_, column_;
  double largest_score_ = 0;
  std::vector<std::vector<double>> weights_;
  std::vector<double> log_sums_;
};

std::vector<double> widened(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

TEST(Attention, is_its_definition_within_its_roundings) {
  for (const char* kind : {"openblas", "reference"}) {
    const auto gemm =
        open_gemm_backend(kind == std::string("openblas") ? choose_gemm_backend() : kind);
    for (const AttentionShape& shape : shapes()) {
      Pass pass(shape);
      pass.run(*gemm);
      const std::vector<double> qkv = widened(pass.qkv);
      for (int sequence = 0; sequence < shape.sequences; ++sequence) {
        for (int head = 0; head < shape.heads; ++head) {
          const Exact exact(pass, qkv, sequence, head);
          for (int query = 0; query < shape.length; ++query) {
            const int row = sequence * shape.length + query;
            const std::size_t kept =
                static_cast<std::size_t>((sequence * shape.heads + head) * shape.length + query);
            ASSERT_NEAR(double{pass.highest[kept]} - std::log(double{pass.share[kept]}),
                        exact.log_sum(query), exact.weight_roundings() * epsilon);
            for (int i = 0; i < shape.head_width; ++i) {
              const float got = pass.out[row * pass.width + head * shape.head_width + i];
              ASSERT_NEAR(double{got}, exact.out(query, i),
                          (exact.weight_roundings() + shape.length + 3) * epsilon *
                              exact.out(query, i, true))
                  << kind << " length " << shape.length << " query " << query;
            }
          }
        }
      }
    }
  }
}

/// Magnitudes of what a gradient is summed from, by row and column of one head.
struct GradientMagnitudes {
  std::array<std::vector<double>, 3> of;  // query, key, value
};
GradientMagnitudes gradient_magnitudes(const Exact& exact) {
  const int size = exact.size(), length = exact.length();
  GradientMagnitudes sums;
  for (auto& part : sums.of) {
    part.assign(static_cast<std::size_t>(length * size), 0.0);
  }
  for (int query = 0; query < length; ++query) {
    std::vector<double> slopes;
    double common = 0;
    for (int key = 0; key <= query; ++key) {
      double slope = 0;
      for (int i = 0; i < size; ++i) {
        slope += std::abs(exact.dout(query, i) * exact.at(key, 2, i));
      }
      slopes.push_back(slope);
      common += exact.weight(query, key) * slope;
    }
    for (int key = 0; key <= query; ++key) {
      const double weight = exact.weight(query, key);
      const double score = weight * (slopes[key] + common) / std::sqrt(size);
      for (int i = 0; i < size; ++i) {
        sums.of[0][query * size + i] += score * std::abs(exact.at(key, 1, i));
        sums.of[1][key * size + i] += score * std::abs(exact.at(query, 0, i));
        sums.of[2][key * size + i] += weight * std::abs(exact.dout(query, i));
      }
    }
  }
  return sums;
}

TEST(Attention, backward_is_the_slope_within_its_roundings) {
  for (const int length : {1, 5, 64, 70, 129}) {
    const AttentionShape shape{.sequences = 1, .length = length, .heads = 2, .head_width = 4};
    Pass pass(shape);
    pass.run(*open_gemm_backend("reference"));
    std::vector<double> qkv = widened(pass.qkv);
    const Exact exact(pass, qkv, 0, 1);
    const GradientMagnitudes magnitudes = gradient_magnitudes(exact);
    // A gradient is a sum of at most `length` products of weights with sums of `size` terms, of
    // which the common one errs as the output does.
    const double roundings = 3 * (exact.weight_roundings() + length + shape.head_width + 6);
    const int stride = std::max(1, length / 12);  // a lattice of rows; each costs two forwards
    for (int row = 0; row < length; row += stride) {
      for (int part = 0; part < 3; ++part) {
        for (int i = 0; i < shape.head_width; ++i) {
          const int place = pass.place(row, part, shape.head_width + i);
          constexpr double step = 1e-5;
          const double home = qkv[place];
          qkv[place] = home + step;
          const double above = Exact(pass, qkv, 0, 1).along();
          qkv[place] = home - step;
          const double below = Exact(pass, qkv, 0, 1).along();
          qkv[place] = home;
          // The difference itself errs by some step^2 and by f64's roundings of `along` over step.
          const double of_difference = 1e-9;
          ASSERT_NEAR(
              double{pass.dqkv[place]}, (above - below) / (2 * step),
              roundings * epsilon * magnitudes.of[part][row * shape.head_width + i] + of_difference)
              << "length " << length << " row " << row << " part " << part;
        }
      }
    }
  }
}

TEST(Attention, carries_a_later_and_much_higher_score) {
  // Scores grow along the keys by hundreds: earlier blocks vanish, and nothing overflows.
  const AttentionShape shape{.sequences = 1, .length = 150, .heads = 1, .head_width = 2};
  Pass pass(shape);
  for (int row = 0; row < shape.length; ++row) {
    for (int i = 0; i < 2; ++i) {
      pass.qkv[pass.place(row, 0, i)] = 10.0f;
      pass.qkv[pass.place(row, 1, i)] = static_cast<float>(row);
    }
  }
  pass.run(*open_gemm_backend("reference"));
  for (int row = 0; row < shape.length; ++row) {
    for (int i = 0; i < 2; ++i) {
      // The last key weighs 1, all others e^-14 together at most.
      const double value = double{pass.qkv[pass.place(row, 2, i)]};
      EXPECT_NEAR(double{pass.out[row * 2 + i]}, value, 4 * std::exp(-14.0));
    }
  }
  EXPECT_TRUE(std::ranges::all_of(pass.dqkv, [](float x) { return std::isfinite(x); }));
}

TEST(Attention, never_looks_ahead) {
  const AttentionShape shape{.sequences = 1, .length = 130, .heads = 2, .head_width = 4};
  const auto gemm = open_gemm_backend("reference");
  Pass pass(shape);
  pass.run(*gemm);
  Pass changed(shape);
  constexpr int from = 100;
  for (int row = from; row < shape.length; ++row) {
    for (int column = 0; column < changed.width; ++column) {
      changed.qkv[changed.place(row, 1, column)] = 50.0f;
      changed.qkv[changed.place(row, 2, column)] = -50.0f;
    }
  }
  changed.run(*gemm);
  const auto end = from * pass.width;
  EXPECT_TRUE(std::equal(pass.out.begin(), pass.out.begin() + end, changed.out.begin()));
  EXPECT_NE(pass.out, changed.out);
}

TEST(Attention, of_each_sequence_and_head_alone_has_the_bits_of_all) {
  const auto gemm = open_gemm_backend("reference");
  for (const AttentionShape& shape : shapes()) {
    Pass all(shape), each(shape);
    all.run(*gemm);
    const AttentionShape one{
        .sequences = 1, .length = shape.length, .heads = 1, .head_width = shape.head_width};
    std::vector<float> workspace(layers::attention_backward_workspace(one));
    for (int sequence = 0; sequence < shape.sequences; ++sequence) {
      for (int head = shape.heads - 1; head >= 0; --head) {  // in another order, too
        const int row = sequence * shape.length, column = head * shape.head_width;
        const float* query = each.qkv.data() + each.place(row, 0, column);
        const int width = each.width, kept = (sequence * shape.heads + head) * shape.length;
        const layers::AttentionInput input{query, query + width, query + 2 * width, 3 * width};
        const layers::AttentionRows rows{each.highest.data() + kept, each.share.data() + kept};
        float* out = each.out.data() + row * width + column;
        layers::attention_forward(*gemm, one,
                                  {.input = input,
                                   .out = out,
                                   .out_stride = width,
                                   .rows = rows,
                                   .workspace = workspace});
        float* dquery = each.dqkv.data() + each.place(row, 0, column);
        layers::attention_backward_input(*gemm, one,
                                         {.input = input,
                                          .out = out,
                                          .dout = each.dout.data() + row * width + column,
                                          .out_stride = width,
                                          .rows = rows,
                                          .dquery = dquery,
                                          .dkey = dquery + width,
                                          .dvalue = dquery + 2 * width,
                                          .workspace = workspace});
      }
    }
    ASSERT_EQ(each.out, all.out) << shape.length;
    ASSERT_EQ(each.dqkv, all.dqkv) << shape.length;
    ASSERT_EQ(each.highest, all.highest) << shape.length;
    ASSERT_EQ(each.share, all.share) << shape.length;
  }
}

TEST(Attention, needs_memory_in_proportion_to_the_length) {
  const auto shape = [](int length) {
    return AttentionShape{.sequences = 3, .length = length, .heads = 5, .head_width = 64};
  };
  constexpr std::size_t block = layers::attention_block;
  for (const int length : {64, 128, 1 << 20}) {
    EXPECT_EQ(layers::attention_kept_count(shape(length)),
              2u * 3 * 5 * static_cast<std::size_t>(length));
    EXPECT_EQ(layers::attention_forward_workspace(shape(length)), block * block);
    EXPECT_EQ(layers::attention_backward_workspace(shape(length)), 2 * block * block + block);
  }
  EXPECT_EQ(layers::attention_forward_workspace(shape(10)), 100u);
}

TEST(Attention, writes_no_more_than_its_workspace_and_refuses_less) {
  const auto gemm = open_gemm_backend("reference");
  for (const AttentionShape& shape : shapes()) {
    Pass pass(shape);
    std::vector<float> workspace(layers::attention_forward_workspace(shape) + 64, 7.0f);
    const layers::AttentionForward forward{
        .input = pass.input(),
        .out = pass.out.data(),
        .out_stride = pass.width,
        .rows = {pass.highest.data(), pass.share.data()},
        .workspace = std::span(workspace).first(workspace.size() - 64)};
    layers::attention_forward(*gemm, shape, forward);
    EXPECT_EQ(std::count(workspace.end() - 64, workspace.end(), 7.0f), 64);
    layers::AttentionForward less = forward;
    less.workspace = less.workspace.first(less.workspace.size() - 1);
    EXPECT_THROW(layers::attention_forward(*gemm, shape, less), Error);
  }
}

TEST(Attention, of_nothing_is_nothing) {
  const auto gemm = open_gemm_backend("reference");
  for (const AttentionShape shape : {AttentionShape{0, 5, 2, 4}, AttentionShape{2, 0, 2, 4}}) {
    std::vector<float> workspace(layers::attention_backward_workspace(shape));
    layers::attention_forward(*gemm, shape, {.workspace = workspace});
    layers::attention_backward_input(*gemm, shape, {.workspace = workspace});
    EXPECT_EQ(layers::attention_forward_cost(shape).flops, 0u);
  }
}

/// Counts what it is asked to do.
class Counting final : public GemmBackend {
 public:
  const std::string& name() const noexcept override { return inner_->name(); }
  void multiply(const MatrixProduct& p) const override {
    flops += 2 * std::uint64_t(p.rows) * std::uint64_t(p.columns) * std::uint64_t(p.inner);
    inner_->multiply(p);
  }
  mutable std::uint64_t flops = 0;

 private:
  std::shared_ptr<const GemmBackend> inner_ = open_gemm_backend("reference");
};

TEST(Attention, costs_what_its_products_count) {
  for (const AttentionShape& shape : shapes()) {
    const Counting counting;
    Pass pass(shape);
    pass.run(counting);
    // Of each score, 2 + 5 products of the head's width and 5 + 7 other operations.
    const auto width = std::uint64_t(shape.head_width);
    const std::uint64_t scores = counting.flops / (2 * 7 * width);
    EXPECT_EQ(counting.flops, scores * 2 * 7 * width);
    EXPECT_EQ(layers::attention_forward_cost(shape).flops, scores * (2 * 2 * width + 5))
        << shape.length;
    EXPECT_EQ(layers::attention_backward_input_cost(shape).flops, scores * (2 * 5 * width + 7))
        << shape.length;
  }
}

}  // namespace
}  // namespace sprat::attention_test
