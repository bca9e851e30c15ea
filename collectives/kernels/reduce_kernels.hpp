// A checked reduction, as the kernels of each family of types take it.
#pragma once

#include <cstddef>
#include <span>

#include "collectives/kernels/prepared_reduction.hpp"
#include "collectives/kernels/reduce.hpp"

namespace sprat::collectives {

struct CheckedReduction {
  const Arithmetic& arithmetic;
  std::span<const Term> terms;
  RankRange covers;  ///< Of all terms together.
  void* to;
  std::size_t count;
};

/// Each runs the best kernels of this processor for its types. No allocation.
void reduce_integers(const CheckedReduction& reduction);
void reduce_floats(const CheckedReduction& reduction);   ///< f32, f64.
void reduce_float16(const CheckedReduction& reduction);  ///< f16, bf16.
void reduce_float8(const CheckedReduction& reduction);   ///< f8e4m3, f8e5m2.
/// Any operation of booleans; band, bor, bxor, land, lor of integers.
void reduce_bits(const CheckedReduction& reduction);

/// The best kernel of this processor that gives complete results of all ranks' contributions in one
/// sweep. Null if there is none for that operation, or for so many ranks.
PreparedReduction::Sweep sweep_of_floats(const Arithmetic& arithmetic);
PreparedReduction::Sweep sweep_of_float16(const Arithmetic& arithmetic);

/// Calls the user's function. Allocates only to throw.
void reduce_user(const CheckedReduction& reduction);

/// Throws: no term begins with this range of the canonical tree.
[[noreturn]] void refuse_terms(RankRange missing);

}  // namespace sprat::collectives
