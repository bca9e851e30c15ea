// The arithmetic of reductions: many sources, one pass, canonical order, one rounding.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "collectives/kernels/canonical_tree.hpp"
#include "sprat/reduction.hpp"

namespace sprat::collectives {

/// One term in memory: the contribution of one rank (in the input type) or the partial of several
/// (in the accumulator type, `partial` true). A partial of one rank is its contribution widened and
/// no more: a factor is applied where a single rank's term enters the tree.
struct Term {
  const void* data = nullptr;
  RankRange covers;
  bool partial = false;
};

/// What a reduction makes of its terms.
struct Arithmetic {
  DType input = DType::f32;
  DType output = DType::f32;  ///< Of a complete result; partials are of the accumulator type.
  ReduceOp op = ReduceOp::sum;
  double factor = 1;             ///< Of premultiplied sums.
  const UserOp* user = nullptr;  ///< Of user operations. Borrowed.
  int ranks = 1;                 ///< Of the whole reduction: what avg divides by.
  bool complete = true;          ///< False: `to` gets a partial, op not finished, not rounded.
  bool past_cache = false;       ///< Results that will not be read soon, if the kernels know how.
};

/// What partials are of: f32 for narrower floats, else the type itself, as for user operations.
DType accumulator_of(DType input, ReduceOp op = ReduceOp::sum) noexcept;

/// Throws, naming the types that `op` takes, if `dtype` is none of them.
void require_takes(ReduceOp op, DType dtype);

/// to[i] <- tree over the terms' elements i, for i < count. Terms are ascending, their ranges
/// joined without gaps. A node tree(first,last) is a term if one covers exactly that, else op(left,
/// right) of what split_point(node, its first term) makes of it: the canonical tree if each range
/// is a subtree of the canonical tree over all `ranks`. Otherwise only the first may cover several.
/// `to` may be exactly one of the terms' memory; no other overlap. Any thread, no allocation
/// up to 64 terms. Integers wrap; avg divides the complete sum, integers truncating toward zero;
/// narrower floats are summed in f32 and rounded once to nearest even; every NaN of a complete
/// result is the one quiet NaN of its type; min and max give NaN if either is, and hold -0 below
/// +0. A term's elements are aligned to their size. The thread's rounding and denormal modes do not
/// matter.
void reduce(const Arithmetic& arithmetic, std::span<const Term> terms, void* to, std::size_t count);

/// Instruction sets that this processor runs the kernels with, best first. The first is in use
/// unless a test chose another.
std::vector<std::string> reduce_targets();
/// For tests: uses only `target` from now on; empty: the best again. False if it is not available.
bool use_reduce_target(const std::string& target);

}  // namespace sprat::collectives
