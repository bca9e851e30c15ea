// The product whose bits do not depend on where it is cut, nor on the machine.
//
// The inner dimension is cut into virtual_tp pieces by halving. A piece is added up term by term,
// first index first; the pieces' sums are joined as a tree of ranks joins contributions. A rank of
// a tensor parallel group that holds one of `inner_parts` parts has a subtree of it, so the
// canonical sum over ranks has the bits of the whole product. Groups of the inner dimension are cut
// each by itself, and a piece has a part of every one. An element of the result depends on its row
// of a and its column of b alone, whatever else is multiplied with them.
//
// Cost: 2 rows columns inner operations, without fused ones, which not every processor has.
// Operands are packed into panels for a tile of accumulators that stays in registers.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "comm/base/aligned.hpp"
#include "comm/base/check.hpp"
#include "comm/base/vector.hpp"
#include "gemm/gemm_kind.hpp"

namespace sprat::mp {
namespace {

// A tile has as many accumulators as 16 registers of 8 floats hold beside its operands.
constexpr int tile_rows = 6, tile_columns = 16;
// A block of the result with its packed operands (0.8 MB at most) stays in a second-level cache,
// and is large enough that packing is small beside multiplying.
constexpr int block_rows = 32 * tile_rows, block_columns = 16 * tile_columns, block_depth = 128;
// Sums that are alive together while the pieces' tree is walked: a node's left one, at each level.
constexpr int slots = 3;
static_assert(1 << (slots - 1) == virtual_tp);

constexpr std::size_t cache_line = 64;
/// Not initialised: a vector would write it once more than needed.
AlignedMemory<float> scratch_of(std::size_t count) {
  return aligned_memory<float>(count, cache_line);
}

constexpr int round_up(int count, int to) { return (count + to - 1) / to * to; }

/// An operand as vectors over its outer index, one for each inner index.
struct Operand {
  const float* data;
  std::ptrdiff_t outer, inner;  // elements from one index to the next
};
Operand rows_of(const ConstMatrix& a) {
  return a.transposed ? Operand{a.data, 1, a.stride} : Operand{a.data, a.stride, 1};
}
Operand columns_of(const ConstMatrix& b) {
  return b.transposed ? Operand{b.data, b.stride, 1} : Operand{b.data, 1, b.stride};
}

struct Range {
  int first, last;
  int size() const { return last - first; }
};

/// Panels of `width` outer indices, each with all inner ones of the range. What is missing of the
/// last panel is 0 and meets only accumulators that nobody stores.
template <int width>
void pack(const Operand& from, Range outer, Range inner, float* packed) {
  for (int first = outer.first; first < outer.last; first += width) {
    const int count = std::min(width, outer.last - first);
    const float* begin = from.data + first * from.outer + inner.first * from.inner;
    if (count < width) {
      std::fill_n(packed, std::size_t{1} * width * inner.size(), 0.0f);
    }
    // The loop over contiguous memory is the inner one.
    if (from.outer == 1) {
      for (int k = 0; k < inner.size(); ++k) {
        std::copy_n(begin + k * from.inner, count, packed + std::ptrdiff_t{k} * width);
      }
    } else {
      for (int i = 0; i < count; ++i) {
        for (int k = 0; k < inner.size(); ++k) {
          packed[std::ptrdiff_t{k} * width + i] = begin[i * from.outer + k * from.inner];
        }
      }
    }
    packed += std::ptrdiff_t{width} * inner.size();
  }
}

/// The compiler's own vectors: whatever registers the target has, it keeps the tile in them.
using Row = float __attribute__((vector_size(tile_columns * sizeof(float))));

/// sums += the terms of `depth` inner indices, one after another.
SPRAT_CLONES void add_tile(int depth, const float* a, const float* b, float* sums, int stride) {
  Row row[tile_rows];
  for (int i = 0; i < tile_rows; ++i) {
    std::memcpy(&row[i], sums + std::ptrdiff_t{i} * stride, sizeof(Row));
  }
  for (int k = 0; k < depth; ++k, a += tile_rows, b += tile_columns) {
    Row column;
    std::memcpy(&column, b, sizeof(Row));
    for (int i = 0; i < tile_rows; ++i) {
      row[i] += a[i] * column;
    }
  }
  for (int i = 0; i < tile_rows; ++i) {
    std::memcpy(sums + std::ptrdiff_t{i} * stride, &row[i], sizeof(Row));
  }
}

SPRAT_CLONES void add(std::size_t count, const float* right, float* left) {
  for (std::size_t i = 0; i < count; ++i) {
    left[i] += right[i];
  }
}

/// One block of the result.
class Block {
 public:
  Block(const MatrixProduct& product, float* scratch, int most_rows, int most_columns,
        int most_depth)
      : p_(product), a_(rows_of(product.a)), b_(columns_of(product.b)) {
    packed_a_ = scratch;
    packed_b_ = packed_a_ + std::size_t{1} * most_rows * most_depth;
    sums_ = packed_b_ + std::size_t{1} * most_columns * most_depth;
  }

  void compute(Range rows, Range columns) {
    rows_ = rows;
    columns_ = columns;
    stride_ = round_up(columns.size(), tile_columns);
    size_ = std::size_t{1} * round_up(rows.size(), tile_rows) * stride_;
    sum_pieces({0, p_.inner / p_.inner_groups}, virtual_tp / p_.inner_parts, 0);
    store();
  }

 private:
  /// Halves of halves of a group: a part of the inner dimension is then a subtree's, cut where the
  /// whole is cut.
  void sum_pieces(Range of_group, int pieces, int slot) {
    if (pieces == 1) {
      sum_piece(of_group, slot);
      return;
    }
    const int middle = of_group.first + of_group.size() / 2;
    sum_pieces({of_group.first, middle}, pieces / 2, slot);
    sum_pieces({middle, of_group.last}, pieces / 2, slot + 1);
    add(size_, sums(slot + 1), sums(slot));
  }

  void sum_piece(Range of_group, int slot) {
    std::fill_n(sums(slot), size_, 0.0f);
    const int group_length = p_.inner / p_.inner_groups;
    for (int group = 0; group < p_.inner_groups; ++group) {
      const int begin = group * group_length;
      add_terms({begin + of_group.first, begin + of_group.last}, slot);
    }
  }

  void add_terms(Range inner, int slot) {
    for (int first = inner.first; first < inner.last; first += block_depth) {
      const Range depth{first, std::min(first + block_depth, inner.last)};
      pack<tile_rows>(a_, rows_, depth, packed_a_);
      pack<tile_columns>(b_, columns_, depth, packed_b_);
      for (int column = 0; column < columns_.size(); column += tile_columns) {
        for (int row = 0; row < rows_.size(); row += tile_rows) {
          add_tile(depth.size(), packed_a_ + std::ptrdiff_t{row} * depth.size(),
                   packed_b_ + std::ptrdiff_t{column} * depth.size(),
                   sums(slot) + std::ptrdiff_t{row} * stride_ + column, stride_);
        }
      }
    }
  }

  void store() {
    for (int row = 0; row < rows_.size(); ++row) {
      const float* sum = sums(0) + std::ptrdiff_t{row} * stride_;
      float* out = p_.out.data + std::ptrdiff_t{rows_.first + row} * p_.out.stride + columns_.first;
      for (int i = 0; i < columns_.size(); ++i) {
        out[i] = p_.beta == 0.0f ? p_.alpha * sum[i] : p_.alpha * sum[i] + p_.beta * out[i];
      }
    }
  }

  float* sums(int slot) { return sums_ + size_ * static_cast<std::size_t>(slot); }

  const MatrixProduct& p_;
  Operand a_, b_;
  float *packed_a_, *packed_b_, *sums_;
  Range rows_{}, columns_{};
  int stride_ = 0;
  std::size_t size_ = 0;  // elements of a slot
};

class ReferenceBackend final : public GemmBackend {
 public:
  const std::string& name() const noexcept override { return name_; }
  int sum_pieces() const noexcept override { return virtual_tp; }
  void multiply(const MatrixProduct& p) const override {
    require(p.inner_parts > 0 && virtual_tp % p.inner_parts == 0, "a product is one of ",
            p.inner_parts, " parts; the reference backend adds up ", virtual_tp,
            " pieces, so take a tensor parallel degree that divides this");
    require(p.inner_groups > 0 && p.inner % p.inner_groups == 0, "the ", p.inner,
            " terms of a product are said to be ", p.inner_groups,
            " groups of equal length; that takes a divisor");
    const int rows = round_up(std::min(p.rows, block_rows), tile_rows);
    const int columns = round_up(std::min(p.columns, block_columns), tile_columns);
    const int depth = round_up(std::min(p.inner, block_depth), tile_columns);
    const AlignedMemory<float> scratch =
        scratch_of(std::size_t{1} * rows * depth + std::size_t{1} * columns * depth +
                   std::size_t{slots} * rows * columns);
    Block block(p, scratch.get(), rows, columns, depth);
    for (int column = 0; column < p.columns; column += block_columns) {
      for (int row = 0; row < p.rows; row += block_rows) {
        block.compute({row, std::min(row + block_rows, p.rows)},
                      {column, std::min(column + block_columns, p.columns)});
      }
    }
  }

 private:
  const std::string name_ = "reference";
};

std::vector<std::string> reference_backends() { return {"reference"}; }

std::vector<GemmRate> reference_rates() {
  const ReferenceBackend backend;
  const double gflops =
      measure_gemm([&](const MatrixProduct& product) { backend.multiply(product); });
  return {{.backend = backend.name(), .gflops = gflops}};
}

std::string choose_reference() { return "reference"; }

std::shared_ptr<const GemmBackend> open_reference(std::string_view) {
  return std::make_shared<const ReferenceBackend>();
}

std::string reference_build() { return {}; }
std::string reference_warning() { return {}; }

}  // namespace

extern const GemmKind reference_gemm = {
    .name = "reference",
    .summary = "the same bits on every machine and however a product is cut",
    .backends = reference_backends,
    .rates = reference_rates,
    .choose = choose_reference,
    .open = open_reference,
    .build = reference_build,
    .warning = reference_warning,
};

}  // namespace sprat::mp
