// Attention in blocks, beside attention by its definition in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

#include "sprat/error.hpp"
#include "sprat/layers.hpp"
#include "tests/unit/layers/attention_pass.hpp"
#include "tests/unit/layers/roundings.hpp"

namespace sprat::layers_test::attention {
namespace {

/// Around the ends of blocks of queries and of keys.
std::vector<AttentionShape> shapes() {
  std::vector<AttentionShape> all;
  for (const int length : {1, 3, 63, 64, 65, 130}) {
    all.push_back({.sequences = 2, .length = length, .heads = 2, .head_width = 8});
  }
  all.push_back({.sequences = 1, .length = 200, .heads = 1, .head_width = 17});
  for (const int length : {256, 257, 321}) {
    all.push_back({.sequences = 1, .length = length, .heads = 2, .head_width = 4});
  }
  return all;
}

TEST(Attention, is_its_definition_within_its_roundings) {
  for (const auto& gemm : backends()) {
    for (const AttentionShape& shape : shapes()) {
      SCOPED_TRACE(gemm->name() + " length " + std::to_string(shape.length));
      Pass pass(shape);
      pass.run(*gemm);
      for (int sequence = 0; sequence < shape.sequences; ++sequence) {
        for (int head = 0; head < shape.heads; ++head) {
          const Exact exact(pass, sequence, head);
          const std::vector<double> out = attend(exact.qkv, shape.head_width);
          for (int query = 0; query < shape.length; ++query) {
            const int kept = (sequence * shape.heads + head) * shape.length + query;
            ASSERT_NEAR(double{pass.highest[kept]} - std::log(double{pass.share[kept]}),
                        exact.log_sums[query], gamma(exact.weight_roundings()));
            for (int i = 0; i < shape.head_width; ++i) {
              const int row = sequence * shape.length + query, place = query * shape.head_width + i;
              ASSERT_NEAR(double{pass.out[row * pass.width + head * shape.head_width + i]},
                          out[place], gamma(exact.out_roundings()) * exact.out_magnitude[place])
                  << "query " << query;
            }
          }
        }
      }
    }
  }
}

/// Rows at both ends of blocks.
std::vector<int> rows_to_try(int length) {
  std::vector<int> some;
  for (const int row : {0, 1, 63, 64, 128, 255, 256, length - 1}) {
    if (row < length && std::ranges::count(some, row) == 0) {
      some.push_back(row);
    }
  }
  return some;
}

/// d sum(out * dout) / d one element of query (part 0), key or value.
double slope_of(const Exact& exact, int size, int part, int place) {
  const auto along = [&](const std::vector<std::complex<double>>& moved) {
    std::array<std::vector<std::complex<double>>, 3> qkv;
    for (int other = 0; other < 3; ++other) {
      qkv[other].assign(exact.qkv[other].begin(), exact.qkv[other].end());
    }
    qkv[part] = moved;
    const auto out = attend(qkv, size);
    std::complex<double> sum = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      sum += out[i] * exact.dout[i];
    }
    return sum;
  };
  return slope(along, exact.qkv[part], static_cast<std::size_t>(place));
}

TEST(Attention, backward_is_the_slope_within_its_roundings) {
  for (const int length : {1, 5, 64, 70, 129, 258}) {
    const AttentionShape shape{.sequences = 1, .length = length, .heads = 2, .head_width = 3};
    std::vector<Pass> passes;
    for (const auto& gemm : backends()) {
      passes.emplace_back(shape).run(*gemm);
    }
    const Exact exact(passes[0], 0, 1);
    for (const int row : rows_to_try(length)) {
      for (int part = 0; part < 3; ++part) {
        for (int i = 0; i < shape.head_width; ++i) {
          const int place = row * shape.head_width + i;
          const double expected = slope_of(exact, shape.head_width, part, place);
          for (const Pass& pass : passes) {
            ASSERT_NEAR(double{pass.dqkv[pass.place(row, part, shape.head_width + i)]}, expected,
                        gamma(exact.gradient_roundings()) * exact.gradient_magnitude[part][place])
                << "length " << length << " row " << row << " part " << part;
          }
        }
      }
    }
  }
}

/// All weight of a query on one of its keys: on its own if `growing`, else on the first. Other
/// scores are lower by 141 or more, where an exponential is 0.
void expect_one_key(bool growing) {
  const AttentionShape shape{.sequences = 1, .length = 300, .heads = 1, .head_width = 2};
  Pass pass(shape);
  for (int row = 0; row < shape.length; ++row) {
    for (int i = 0; i < 2; ++i) {
      pass.qkv[pass.place(row, 0, i)] = 100.0f;
      pass.qkv[pass.place(row, 1, i)] = static_cast<float>(growing ? row : -row);
    }
  }
  pass.run(*open_gemm_backend("reference"));
  for (int row = 0; row < shape.length; ++row) {
    for (int i = 0; i < 2; ++i) {
      const int key = growing ? row : 0;
      EXPECT_EQ(pass.out[row * 2 + i], pass.qkv[pass.place(key, 2, i)]) << row;
      EXPECT_EQ(pass.dqkv[pass.place(row, 0, i)], 0.0f) << row;
    }
  }
}

TEST(Attention, carries_a_later_and_much_higher_score) { expect_one_key(true); }

TEST(Attention, carries_an_earlier_and_much_higher_score) { expect_one_key(false); }

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
  constexpr std::size_t block = layers::attention_block * layers::attention_keys;
  for (const int length : {layers::attention_keys, 1 << 20}) {
    EXPECT_EQ(layers::attention_kept_count(shape(length)),
              2u * 3 * 5 * static_cast<std::size_t>(length));
    EXPECT_EQ(layers::attention_forward_workspace(shape(length)), block);
    EXPECT_EQ(layers::attention_backward_workspace(shape(length)),
              2 * block + layers::attention_block);
  }
  EXPECT_EQ(layers::attention_forward_workspace(shape(10)), 100u);
}

/// Runs `call` with a workspace of `count` elements, which ends where `guard` begins.
template <class Call>
void expect_workspace(std::size_t count, const Call& call) {
  constexpr std::ptrdiff_t guard = 64;
  std::vector<float> memory(count + guard, 7.0f);
  call(std::span(memory).first(count));
  EXPECT_EQ(std::count(memory.end() - guard, memory.end(), 7.0f), guard);
  EXPECT_THROW(call(std::span(memory).first(count - 1)), Error);
}

TEST(Attention, writes_no_more_than_its_workspace_and_refuses_less) {
  const auto gemm = open_gemm_backend("reference");
  for (const AttentionShape& shape : shapes()) {
    SCOPED_TRACE(shape.length);
    Pass pass(shape);
    expect_workspace(layers::attention_forward_workspace(shape), [&](std::span<float> workspace) {
      layers::attention_forward(*gemm, shape, pass.forward(workspace));
    });
    expect_workspace(layers::attention_backward_workspace(shape), [&](std::span<float> workspace) {
      layers::attention_backward_input(*gemm, shape, pass.backward(workspace));
    });
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
  int sum_pieces() const noexcept override { return inner_->sum_pieces(); }
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
    // Of each score, 2 + 5 products of the head's width and 4 + 5 other operations.
    const auto width = std::uint64_t(shape.head_width);
    const std::uint64_t scores = counting.flops / (2 * 7 * width);
    EXPECT_EQ(counting.flops, scores * 2 * 7 * width);
    EXPECT_EQ(layers::attention_forward_cost(shape).flops, scores * (2 * 2 * width + 4))
        << shape.length;
    EXPECT_EQ(layers::attention_backward_input_cost(shape).flops, scores * (2 * 5 * width + 5))
        << shape.length;
  }
}

}  // namespace
}  // namespace sprat::layers_test::attention
