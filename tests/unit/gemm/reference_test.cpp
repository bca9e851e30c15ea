// The reference backend: its definition bit for bit, and the same bits however a product is cut.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "sprat/error.hpp"
#include "sprat/mp.hpp"

namespace sprat::reference_gemm_test {
namespace {

struct Shape {
  int rows, columns, inner;
  bool transpose_a = false, transpose_b = false;
  float alpha = 1.0f, beta = 0.0f;
};
std::ostream& operator<<(std::ostream& out, const Shape& s) {
  return out << s.rows << "x" << s.columns << "x" << s.inner << (s.transpose_a ? " T" : " N")
             << (s.transpose_b ? "T" : "N") << " alpha " << s.alpha << " beta " << s.beta;
}

/// Around tiles of 6 x 16; the last one is larger than a block in every direction, its pieces too.
std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (const auto [rows, columns, inner] : {std::array{1, 1, 1},
                                            {6, 16, 4},
                                            {7, 17, 3},
                                            {5, 15, 2},
                                            {13, 33, 130},
                                            {64, 24, 66},
                                            {200, 260, 530}}) {
    for (const bool a : {false, true}) {
      all.push_back({rows, columns, inner, a, false});
      all.push_back({rows, columns, inner, a, true, 0.3f, -0.7f});
    }
  }
  return all;
}

struct Values {
  explicit Values(const Shape& shape)
      : a(random(shape.rows * shape.inner, 1)),
        b(random(shape.inner * shape.columns, 2)),
        out(random(shape.rows * shape.columns, 3)) {}
  static std::vector<float> random(int count, unsigned seed) {
    std::mt19937 generator(seed);
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) {
      value = static_cast<float>(static_cast<std::int32_t>(generator())) * 0x1p-30f;
    }
    return values;
  }
  std::vector<float> a, b, out;
};

MatrixProduct product_of(const Shape& s, const Values& values, std::vector<float>& out) {
  return {.rows = s.rows,
          .columns = s.columns,
          .inner = s.inner,
          .alpha = s.alpha,
          .a = {values.a.data(), s.transpose_a ? s.rows : s.inner, s.transpose_a},
          .b = {values.b.data(), s.transpose_b ? s.inner : s.columns, s.transpose_b},
          .beta = s.beta,
          .out = {out.data(), s.columns}};
}

std::vector<float> multiplied(const Shape& shape, const Values& values) {
  std::vector<float> out = values.out;
  open_gemm_backend("reference")->multiply(product_of(shape, values, out));
  return out;
}

/// Moves a product to a part of its rows, columns or inner indices.
const float* at(const ConstMatrix& matrix, int row, int column) {
  return matrix.data + (matrix.transposed ? std::ptrdiff_t{column} * matrix.stride + row
                                          : std::ptrdiff_t{row} * matrix.stride + column);
}

/// A sum with what may have been lost: each operation errs by at most half an ulp of its result
/// (running error analysis, Wilkinson; Higham, section 3.3). All of it computed with f32's results.
struct Sum {
  float value = 0;
  double error = 0;
};
constexpr double unit = std::numeric_limits<float>::epsilon() / 2;
Sum plus(Sum left, Sum right) {
  const float value = left.value + right.value;
  return {value, left.error + right.error + unit * std::abs(double{value})};
}
Sum times(float left, Sum right) {
  const float value = left * right.value;
  return {value, std::abs(double{left}) * right.error + unit * std::abs(double{value})};
}

Sum piece(const MatrixProduct& p, int row, int column, int first, int last) {
  Sum sum;
  for (int k = first; k < last; ++k) {
    sum = plus(sum, times(*at(p.a, row, k), {*at(p.b, k, column)}));
  }
  return sum;
}
/// Four pieces by halving, joined as ((0 + 1) + (2 + 3)).
Sum defined(const MatrixProduct& p, int row, int column) {
  const int n = p.inner, half = n / 2, last = half + (n - half) / 2;
  const auto sum = [&](int from, int to) { return piece(p, row, column, from, to); };
  return plus(plus(sum(0, half / 2), sum(half / 2, half)), plus(sum(half, last), sum(last, n)));
}

TEST(ReferenceGemm, is_the_tree_of_four_pieces_added_term_by_term) {
  for (const Shape& shape : shapes()) {
    const Values values(shape);
    std::vector<float> unused = values.out;
    const MatrixProduct p = product_of(shape, values, unused);
    const std::vector<float> got = multiplied(shape, values);
    // Every element of small ones; of large ones those of a lattice that meets all tiles.
    const int step = shape.rows > 100 ? 5 : 1;
    for (int row = 0; row < shape.rows; row += step) {
      for (int column = 0; column < shape.columns; column += step) {
        const int index = row * shape.columns + column;
        Sum sum = times(p.alpha, defined(p, row, column));
        if (p.beta != 0) {
          sum = plus(sum, times(p.beta, {values.out[index]}));
        }
        ASSERT_EQ(got[index], sum.value) << shape << " at " << row << ", " << column;
      }
    }
  }
}

TEST(ReferenceGemm, errs_by_no_more_than_its_roundings) {
  for (const Shape& shape : shapes()) {
    const Values values(shape);
    std::vector<float> unused = values.out;
    const MatrixProduct p = product_of(shape, values, unused);
    const std::vector<float> got = multiplied(shape, values);
    const int step = shape.rows > 100 ? 7 : 1;
    for (int row = 0; row < shape.rows; row += step) {
      for (int column = 0; column < shape.columns; column += step) {
        const int index = row * shape.columns + column;
        double exact = 0;
        for (int k = 0; k < shape.inner; ++k) {
          exact += double{*at(p.a, row, k)} * double{*at(p.b, k, column)};
        }
        exact = double{p.alpha} * exact + double{p.beta} * double{values.out[index]};
        Sum sum = times(p.alpha, defined(p, row, column));
        if (p.beta != 0) {
          sum = plus(sum, times(p.beta, {values.out[index]}));
        }
        ASSERT_LE(std::abs(double{got[index]} - exact), sum.error)
            << shape << " at " << row << ", " << column;
      }
    }
  }
}

TEST(ReferenceGemm, parts_of_the_inner_dimension_add_up_to_the_bits_of_the_whole) {
  for (Shape shape : shapes()) {
    shape.alpha = 1.0f;
    shape.beta = 0.0f;
    const Values values(shape);
    const std::vector<float> whole = multiplied(shape, values);
    for (const int parts : {2, 4}) {
      if (shape.inner % parts != 0) {
        continue;  // they would not be equal
      }
      std::vector<std::vector<float>> sums(static_cast<std::size_t>(parts));
      for (int part = 0; part < parts; ++part) {
        sums[part].resize(whole.size());
        MatrixProduct p = product_of(shape, values, sums[part]);
        p.inner /= parts;
        p.inner_parts = parts;
        p.a.data = at(p.a, 0, part * p.inner);
        p.b.data = at(p.b, part * p.inner, 0);
        open_gemm_backend("reference")->multiply(p);
      }
      for (std::size_t i = 0; i < whole.size(); ++i) {
        const float left = sums[0][i] + sums[1][i];
        ASSERT_EQ(parts == 2 ? left : left + (sums[2][i] + sums[3][i]), whole[i])
            << shape << " in " << parts << " parts at " << i;
      }
    }
  }
}

/// The inner indices that part `part` of `parts` has: of each group its part.
std::vector<int> inner_of(int length, int groups, int parts, int part) {
  std::vector<int> indices;
  for (int group = 0; group < groups; ++group) {
    for (int k = length * part / parts; k < length * (part + 1) / parts; ++k) {
      indices.push_back(group * length + k);
    }
  }
  return indices;
}

/// The product of these inner indices of a and b alone.
std::vector<float> product_over(const MatrixProduct& whole, const std::vector<int>& inner) {
  std::vector<float> a, b, out(static_cast<std::size_t>(whole.rows * whole.columns));
  for (int row = 0; row < whole.rows; ++row) {
    for (const int k : inner) {
      a.push_back(*at(whole.a, row, k));
    }
  }
  for (const int k : inner) {
    for (int column = 0; column < whole.columns; ++column) {
      b.push_back(*at(whole.b, k, column));
    }
  }
  MatrixProduct product = whole;
  product.inner = static_cast<int>(inner.size());
  product.a = {a.data(), product.inner};
  product.b = {b.data(), whole.columns};
  product.out = {out.data(), whole.columns};
  open_gemm_backend("reference")->multiply(product);
  return out;
}

TEST(ReferenceGemm, parts_of_groups_add_up_to_the_bits_of_the_whole_whether_or_not_they_are_equal) {
  for (const int length : {1, 2, 3, 5, 8, 127, 257}) {
    for (const int groups : {1, 2, 3}) {
      const Shape shape{.rows = 7, .columns = 17, .inner = groups * length};
      const Values values(shape);
      std::vector<float> unused = values.out;
      MatrixProduct product = product_of(shape, values, unused);
      product.inner_groups = groups;
      const std::vector<float> whole = product_over(product, inner_of(length, groups, 1, 0));
      for (const int parts : {2, 4}) {
        product.inner_parts = parts;
        std::vector<std::vector<float>> sums;
        for (int part = 0; part < parts; ++part) {
          sums.push_back(product_over(product, inner_of(length, groups, parts, part)));
        }
        for (std::size_t i = 0; i < whole.size(); ++i) {
          const float left = sums[0][i] + sums[1][i];
          ASSERT_EQ(parts == 2 ? left : left + (sums[2][i] + sums[3][i]), whole[i])
              << groups << " groups of " << length << " in " << parts << " parts at " << i;
        }
      }
    }
  }
}

TEST(ReferenceGemm, a_piece_of_groups_is_each_groups_piece_in_their_order) {
  constexpr int length = 11, groups = 3;
  const Shape shape{.rows = 1, .columns = 1, .inner = groups * length};
  const Values values(shape);
  std::vector<float> got(1);
  MatrixProduct product = product_of(shape, values, got);
  product.inner_groups = groups;
  open_gemm_backend("reference")->multiply(product);
  std::vector<Sum> pieces;
  for (int part = 0; part < virtual_tp; ++part) {
    Sum& sum = pieces.emplace_back();
    for (const int k : inner_of(length, groups, virtual_tp, part)) {
      sum = plus(sum, times(values.a[k], {values.b[k]}));
    }
  }
  EXPECT_EQ(got[0], plus(plus(pieces[0], pieces[1]), plus(pieces[2], pieces[3])).value);
}

TEST(ReferenceGemm, parts_of_rows_and_columns_have_the_bits_of_the_whole) {
  const auto backend = open_gemm_backend("reference");
  for (const Shape& shape : shapes()) {
    const Values values(shape);
    const std::vector<float> whole = multiplied(shape, values);
    for (const int parts : {2, 3, 4}) {
      std::vector<float> by_rows = values.out, by_columns = values.out;
      for (int part = 0; part < parts; ++part) {
        MatrixProduct p = product_of(shape, values, by_rows);
        const int row = shape.rows * part / parts;
        p.rows = shape.rows * (part + 1) / parts - row;
        p.a.data = at(p.a, row, 0);
        p.out.data += std::ptrdiff_t{row} * p.out.stride;
        backend->multiply(p);

        MatrixProduct q = product_of(shape, values, by_columns);
        const int column = shape.columns * part / parts;
        q.columns = shape.columns * (part + 1) / parts - column;
        q.b.data = at(q.b, 0, column);
        q.out.data += column;
        backend->multiply(q);
      }
      ASSERT_EQ(by_rows, whole) << shape << " in " << parts << " parts of rows";
      ASSERT_EQ(by_columns, whole) << shape << " in " << parts << " parts of columns";
    }
  }
}

TEST(ReferenceGemm, of_no_terms_is_zero_and_of_no_elements_nothing) {
  const auto backend = open_gemm_backend("reference");
  std::vector<float> out(6, 3.0f);
  const MatrixProduct none{.rows = 2, .columns = 3, .beta = 0.5f, .out = {out.data(), 3}};
  backend->multiply(none);
  EXPECT_EQ(out, std::vector<float>(6, 1.5f));
  MatrixProduct fresh = none;
  out.assign(6, std::numeric_limits<float>::quiet_NaN());
  fresh.beta = 0;
  backend->multiply(fresh);
  EXPECT_EQ(out, std::vector<float>(6, 0.0f));
  const float one = 1;
  for (const auto [rows, columns] : {std::array{0, 3}, {2, 0}, {0, 0}}) {
    out.assign(6, 7.0f);
    backend->multiply({.rows = rows,
                       .columns = columns,
                       .inner = 1,
                       .a = {&one, 1},
                       .b = {&one, 3},
                       .out = {out.data(), 3}});
    EXPECT_EQ(out, std::vector<float>(6, 7.0f)) << rows << "x" << columns;
  }
}

TEST(ReferenceGemm, keeps_what_is_infinite_to_its_row_and_column) {
  const Shape shape{7, 17, 5};
  Values values(shape);
  const std::vector<float> finite = multiplied(shape, values);
  values.a[6 * 5 + 2] = std::numeric_limits<float>::infinity();
  values.b[3 * 17 + 16] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> got = multiplied(shape, values);
  for (int row = 0; row < 7; ++row) {
    for (int column = 0; column < 17; ++column) {
      const int index = row * 17 + column;
      if (row == 6 || column == 16) {
        EXPECT_FALSE(std::isfinite(got[index])) << row << ", " << column;
      } else {
        EXPECT_EQ(got[index], finite[index]) << row << ", " << column;
      }
    }
  }
}

TEST(ReferenceGemm, refuses_parts_that_are_no_subtree) {
  const auto backend = open_gemm_backend("reference");
  for (const int parts : {0, -1, 3, 8}) {
    EXPECT_THROW(backend->multiply({.inner_parts = parts}), Error) << parts;
  }
}

TEST(ReferenceGemm, refuses_groups_of_different_lengths) {
  const auto backend = open_gemm_backend("reference");
  for (const int groups : {0, -1, 2, 4}) {
    EXPECT_THROW(backend->multiply({.inner = 3, .inner_groups = groups}), Error) << groups;
  }
}

}  // namespace
}  // namespace sprat::reference_gemm_test
