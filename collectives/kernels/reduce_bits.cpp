// Reduction kernels of bits and of truth: band, bor, bxor, land, lor, and all that booleans do.
#include "collectives/kernels/reduce_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/kernels/reduce_bits.cpp"
#include <hwy/foreach_target.h>  // Compiles what follows once per instruction set.

#include "collectives/kernels/reduce_walk_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace sprat::collectives {
namespace HWY_NAMESPACE {

/// Operations on bits do not care about types: an element of n bytes is reduced as n bytes, so one
/// kernel serves all integers.
template <class Op>
void combine_bits(CheckedReduction reduction) {
  reduction.count *= size_of(reduction.arithmetic.input);
  walk_all<Native<std::uint8_t>, Op>(reduction, Exact<std::uint8_t>());
}

/// Any value but zero is true. So all are true if the smallest one is not zero, and one is true if
/// the elements' bits together are not zero. For this the elements count as unsigned, for which
/// zero is the smallest.
template <class T>
void combine_truth(const CheckedReduction& reduction) {
  if (reduction.arithmetic.op == ReduceOp::land) {
    return walk_all<Native<T>, Min>(reduction, Truth<T>());
  }
  walk_all<Native<T>, BitOr>(reduction, Truth<T>());
}

/// Booleans are 0 or 1, with any other byte read as true: products and minima mean "and", sums and
/// maxima "or" (docs/numerics.md).
void reduce_booleans(const CheckedReduction& reduction) {
  using Byte = std::uint8_t;
  switch (reduction.arithmetic.op) {
    case ReduceOp::prod:
    case ReduceOp::min:
    case ReduceOp::band:
    case ReduceOp::land:
      return walk_all<Native<Byte>, Min>(reduction, Truth<Byte>());
    case ReduceOp::sum:
    case ReduceOp::max:
    case ReduceOp::bor:
    case ReduceOp::lor:
      return walk_all<Native<Byte>, BitOr>(reduction, Truth<Byte>());
    case ReduceOp::bxor:
      return walk_all<Native<Byte>, Differ>(reduction, Truth<Byte>());
    case ReduceOp::avg:
    case ReduceOp::premultiplied_sum:
    case ReduceOp::user:
      return;  // reduce() refuses these, or sends them elsewhere
  }
}

void run_bits(const CheckedReduction& reduction) {
  if (reduction.arithmetic.input == DType::boolean) {
    return reduce_booleans(reduction);
  }
  switch (reduction.arithmetic.op) {
    case ReduceOp::band:
      return combine_bits<BitAnd>(reduction);
    case ReduceOp::bor:
      return combine_bits<BitOr>(reduction);
    case ReduceOp::bxor:
      return combine_bits<BitXor>(reduction);
    case ReduceOp::land:
    case ReduceOp::lor:
      break;
    case ReduceOp::sum:
    case ReduceOp::prod:
    case ReduceOp::min:
    case ReduceOp::max:
    case ReduceOp::avg:
    case ReduceOp::premultiplied_sum:
    case ReduceOp::user:
      return;  // reduce() sends these elsewhere
  }
  switch (size_of(reduction.arithmetic.input)) {
    case 1:
      return combine_truth<std::uint8_t>(reduction);
    case 2:
      return combine_truth<std::uint16_t>(reduction);
    case 4:
      return combine_truth<std::uint32_t>(reduction);
    case 8:
      return combine_truth<std::uint64_t>(reduction);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sprat::collectives
HWY_AFTER_NAMESPACE();

// Compiled once, unlike what is above: it picks the best instruction set of this processor.
#if HWY_ONCE
namespace sprat::collectives {

HWY_EXPORT(run_bits);

void reduce_bits(const CheckedReduction& reduction) { HWY_DYNAMIC_DISPATCH(run_bits)(reduction); }

}  // namespace sprat::collectives
#endif
