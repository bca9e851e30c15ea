// The matrix product seam: right values, the same bits everywhere, a probe that chooses.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "sprat/error.hpp"
#include "sprat/mp.hpp"

namespace sprat {
namespace {

struct Case {
  int rows, columns, inner;
  bool transpose_a, transpose_b;
  float alpha, beta;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto [rows, columns, inner] : {std::array{1, 1, 1},
                                            {5, 3, 7},
                                            {16, 16, 16},
                                            {64, 32, 128},
                                            {33, 129, 65},
                                            {256, 96, 48}}) {
    for (const bool a : {false, true}) {
      for (const bool b : {false, true}) {
        all.push_back({rows, columns, inner, a, b, 1.0f, 0.0f});
        all.push_back({rows, columns, inner, a, b, -0.5f, 1.0f});
      }
    }
  }
  return all;
}

/// Operands of a case, `offset` floats into their memory and with rows `slack` longer than needed.
struct Operands {
  Operands(const Case& shape, int offset, int slack) : shape_(shape), offset_(offset) {
    a_stride_ = (shape.transpose_a ? shape.rows : shape.inner) + slack;
    b_stride_ = (shape.transpose_b ? shape.inner : shape.columns) + slack;
    out_stride_ = shape.columns + slack;
    a_ = filled(shape.transpose_a ? shape.inner : shape.rows, a_stride_, slack, 1);
    b_ = filled(shape.transpose_b ? shape.columns : shape.inner, b_stride_, slack, 2);
    out_ = filled(shape.rows, out_stride_, slack, 3);
  }

  MatrixProduct product() {
    return {.rows = shape_.rows,
            .columns = shape_.columns,
            .inner = shape_.inner,
            .alpha = shape_.alpha,
            .a = {a_.data() + offset_, a_stride_, shape_.transpose_a},
            .b = {b_.data() + offset_, b_stride_, shape_.transpose_b},
            .beta = shape_.beta,
            .out = {out_.data() + offset_, out_stride_}};
  }
  double a(int row, int column) const {
    return a_[offset_ + (shape_.transpose_a ? column * a_stride_ + row : row * a_stride_ + column)];
  }
  double b(int row, int column) const {
    return b_[offset_ + (shape_.transpose_b ? column * b_stride_ + row : row * b_stride_ + column)];
  }
  double out(int row, int column) const { return out_[offset_ + row * out_stride_ + column]; }
  std::vector<float> result() const {
    std::vector<float> values;
    for (int row = 0; row < shape_.rows; ++row) {
      for (int column = 0; column < shape_.columns; ++column) {
        values.push_back(static_cast<float>(out(row, column)));
      }
    }
    return values;
  }

 private:
  /// Values depend on (row, column) alone, not on the stride.
  std::vector<float> filled(int rows, int stride, int slack, unsigned seed) const {
    std::vector<float> values(offset_ + static_cast<std::size_t>(rows) * stride, 0.0f);
    std::mt19937 random(seed);
    for (int row = 0; row < rows; ++row) {
      for (int column = 0; column < stride - slack; ++column) {
        values[offset_ + row * stride + column] =
            static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 1000.0f;
      }
    }
    return values;
  }
  Case shape_;
  int offset_, a_stride_, b_stride_, out_stride_;
  std::vector<float> a_, b_, out_;
};

std::string print(const Case& shape) {
  return std::to_string(shape.rows) + "x" + std::to_string(shape.columns) + "x" +
         std::to_string(shape.inner) + (shape.transpose_a ? " T" : " N") +
         (shape.transpose_b ? "T" : "N");
}

TEST(Gemm, every_kernel_multiplies_as_the_definition_says) {
  for (const GemmRate& rate : probe_gemm_backends()) {
    const auto backend = open_gemm_backend(rate.backend);
    for (const Case& shape : cases()) {
      const Operands before(shape, 0, 3);
      Operands after(shape, 0, 3);
      backend->multiply(after.product());
      for (int row = 0; row < shape.rows; ++row) {
        for (int column = 0; column < shape.columns; ++column) {
          double sum = 0, magnitude = 0;
          for (int k = 0; k < shape.inner; ++k) {
            const double term = before.a(row, k) * before.b(k, column);
            sum += term;
            magnitude += std::abs(term);
          }
          const double expected =
              double{shape.alpha} * sum + double{shape.beta} * before.out(row, column);
          // Each of inner + 2 roundings is at most half an ulp of the running magnitude.
          const double bound = (shape.inner + 2) * double{std::numeric_limits<float>::epsilon()} *
                               (magnitude + std::abs(before.out(row, column)));
          ASSERT_NEAR(after.out(row, column), expected, bound)
              << backend->name() << " " << print(shape) << " at " << row << "," << column;
        }
      }
    }
  }
}

TEST(Gemm, what_cuts_sums_in_one_piece_makes_nothing_of_parts_and_groups) {
  for (const GemmRate& rate : probe_gemm_backends()) {
    const auto backend = open_gemm_backend(rate.backend);
    const bool is_reference = rate.backend == "reference";
    ASSERT_EQ(backend->sum_pieces(), is_reference ? virtual_tp : 1) << rate.backend;
    if (is_reference) {
      continue;
    }
    for (const Case& shape : cases()) {
      Operands whole(shape, 0, 0), part(shape, 0, 0);
      backend->multiply(whole.product());
      MatrixProduct product = part.product();
      product.inner_parts = 2;
      product.inner_groups = 3;
      backend->multiply(product);
      ASSERT_EQ(part.result(), whole.result()) << rate.backend << " " << print(shape);
    }
  }
}

TEST(Gemm, bits_depend_on_neither_alignment_nor_stride) {
  for (const GemmRate& rate : probe_gemm_backends()) {
    const auto backend = open_gemm_backend(rate.backend);
    for (const Case& shape : cases()) {
      Operands reference(shape, 0, 0);
      backend->multiply(reference.product());
      for (const int offset : {1, 3, 8, 13}) {
        for (const int slack : {0, 5}) {
          Operands moved(shape, offset, slack);
          backend->multiply(moved.product());
          ASSERT_EQ(moved.result(), reference.result())
              << backend->name() << " " << print(shape) << " offset " << offset << " slack "
              << slack;
        }
      }
    }
  }
}

class GemmOnThreads : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kinds, GemmOnThreads, testing::ValuesIn(gemm_backend_kinds()));

TEST_P(GemmOnThreads, at_once_gets_the_bits_of_one_alone) {
  const auto backend =
      open_gemm_backend(GetParam() == "openblas" ? choose_gemm_backend() : GetParam());
  const std::vector<Case> all = cases();
  std::vector<std::vector<float>> alone;
  for (const Case& shape : all) {
    Operands operands(shape, 0, 0);
    backend->multiply(operands.product());
    alone.push_back(operands.result());
  }
  constexpr int threads = 4, repetitions = 20;
  std::vector<int> differing(threads, 0);
  {
    std::vector<std::jthread> running;
    for (int thread = 0; thread < threads; ++thread) {
      running.emplace_back([&, thread] {
        for (int repetition = 0; repetition < repetitions; ++repetition) {
          for (std::size_t i = 0; i < all.size(); ++i) {
            const std::size_t which = (i + static_cast<std::size_t>(thread) * 7) % all.size();
            Operands operands(all[which], thread, 0);
            backend->multiply(operands.product());
            differing[thread] += operands.result() != alone[which];
          }
        }
      });
    }
  }
  EXPECT_EQ(differing, std::vector<int>(threads, 0));
}

TEST(Gemm, beta_zero_reads_nothing_from_out) {
  for (const GemmRate& rate : probe_gemm_backends()) {
    const auto backend = open_gemm_backend(rate.backend);
    std::vector<float> a(64, 1.0f), out(64, std::numeric_limits<float>::quiet_NaN());
    backend->multiply({.rows = 8,
                       .columns = 8,
                       .inner = 8,
                       .a = {a.data(), 8},
                       .b = {a.data(), 8},
                       .out = {out.data(), 8}});
    EXPECT_EQ(out, std::vector<float>(64, 8.0f)) << rate.backend;
  }
}

TEST(Gemm, the_choice_is_no_slower_than_the_librarys_own) {
  const std::vector<GemmRate> rates = probe_gemm_backends();
  ASSERT_FALSE(rates.empty());
  EXPECT_EQ(choose_gemm_backend(), rates.front().backend);
  for (const GemmRate& rate : rates) {
    if (rate.backend.starts_with("openblas/")) {
      EXPECT_LE(rate.gflops, 1.3 * rates.front().gflops) << rate.backend;
    }
  }
  EXPECT_NE(describe_gemm_backends().find(rates.front().backend), std::string::npos);
}

TEST(Gemm, an_unknown_kernel_is_refused_with_what_there_is) {
  try {
    open_gemm_backend("openblas/Abacus");
    FAIL() << "opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_NE(std::string(error.what()).find(choose_gemm_backend()), std::string::npos)
        << error.what();
  }
}

TEST(Gemm, a_process_has_one_kernel_of_openblas_at_a_time_and_reference_beside_it) {
  const std::vector<GemmRate> rates = probe_gemm_backends();
  const auto first = open_gemm_backend(rates.front().backend);
  ASSERT_TRUE(first->name().starts_with("openblas/"));
  EXPECT_EQ(open_gemm_backend(rates.front().backend), first);
  for (const GemmRate& rate : rates) {
    if (rate.backend == "reference") {
      EXPECT_EQ(open_gemm_backend(rate.backend)->name(), rate.backend);
    } else if (rate.backend != first->name()) {
      EXPECT_THROW(open_gemm_backend(rate.backend), Error) << rate.backend;
    }
  }
}

}  // namespace
}  // namespace sprat
