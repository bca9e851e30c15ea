// A checked reduction, as the kernels of each family of types take it.
#pragma once

#include <cstddef>
#include <span>

#include "collectives/kernels/reduce.hpp"

namespace sprat::collectives {

struct Request {
  std::span<const Term> terms;
  RankRange covers;  ///< Of all terms together.
  DType input, output;
  ReduceOp op;
  double factor;
  const UserOp* user;
  int ranks;
  bool complete;
  bool past_cache;
  void* to;
  std::size_t count;
};

/// Each runs the best kernels of this processor for its types. No allocation.
void reduce_integers(const Request& request);
void reduce_floats(const Request& request);   ///< f32, f64.
void reduce_float16(const Request& request);  ///< f16, bf16.
void reduce_float8(const Request& request);   ///< f8e4m3, f8e5m2.
/// Any operation of booleans; band, bor, bxor, land, lor of integers.
void reduce_bits(const Request& request);

/// Calls the user's function. Allocates only to throw.
void reduce_user(const Request& request);

/// Throws: no term begins with this range of the canonical tree.
[[noreturn]] void refuse_terms(RankRange missing);

}  // namespace sprat::collectives
