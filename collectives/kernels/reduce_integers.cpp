// Reduction kernels of the integers: they wrap, and averages truncate toward zero.
#include "collectives/kernels/reduce_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/kernels/reduce_integers.cpp"
#include <hwy/foreach_target.h>  // Compiles what follows once per instruction set.

#include "collectives/kernels/reduce_walk_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace sprat::collectives {
namespace HWY_NAMESPACE {

/// Divides in a type that holds the number of ranks, which may be more than T holds: 32 bits of T's
/// sign, or 64 where T has as many.
template <class T>
void divide(T* values, std::size_t count, int ranks) {
  using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  using Word = std::conditional_t<std::is_signed_v<T>, std::int32_t, std::uint32_t>;
  using Dividend = std::conditional_t<sizeof(T) == 8, Wide, Word>;
  const auto divisor = static_cast<Dividend>(ranks);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<T>(static_cast<Dividend>(values[i]) / divisor);
  }
}

template <class T>
void reduce_integers_of(const CheckedReduction& reduction) {
  // Sums and products are of unsigned numbers, which wrap: overflow of signed ones is undefined in
  // C++. The bits are the same. Minima and maxima need the sign.
  using Bits = std::make_unsigned_t<T>;
  switch (reduction.arithmetic.op) {
    case ReduceOp::sum:
      return walk_all<Native<Bits>, Sum>(reduction, Exact<Bits>());
    case ReduceOp::prod:
      return walk_all<Native<Bits>, Prod>(reduction, Exact<Bits>());
    case ReduceOp::min:
      return walk_all<Native<T>, Min>(reduction, Exact<T>());
    case ReduceOp::max:
      return walk_all<Native<T>, Max>(reduction, Exact<T>());
    case ReduceOp::avg:
      walk_all<Native<Bits>, Sum>(reduction, Exact<Bits>());
      if (reduction.arithmetic.complete) {
        divide(static_cast<T*>(reduction.to), reduction.count, reduction.arithmetic.ranks);
      }
      return;
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
    case ReduceOp::land:
    case ReduceOp::lor:
    case ReduceOp::premultiplied_sum:
    case ReduceOp::user:
      return;  // reduce() sends these elsewhere.
  }
}

void run_integers(const CheckedReduction& reduction) {
  switch (reduction.arithmetic.input) {
    case DType::i8:
      return reduce_integers_of<std::int8_t>(reduction);
    case DType::u8:
      return reduce_integers_of<std::uint8_t>(reduction);
    case DType::i16:
      return reduce_integers_of<std::int16_t>(reduction);
    case DType::u16:
      return reduce_integers_of<std::uint16_t>(reduction);
    case DType::i32:
      return reduce_integers_of<std::int32_t>(reduction);
    case DType::u32:
      return reduce_integers_of<std::uint32_t>(reduction);
    case DType::i64:
      return reduce_integers_of<std::int64_t>(reduction);
    case DType::u64:
      return reduce_integers_of<std::uint64_t>(reduction);
    case DType::f16:
    case DType::bf16:
    case DType::f32:
    case DType::f64:
    case DType::f8e4m3:
    case DType::f8e5m2:
    case DType::boolean:
      return;  // reduce() sends these elsewhere.
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sprat::collectives
HWY_AFTER_NAMESPACE();

// Compiled once, unlike what is above: it picks the best instruction set of this processor.
#if HWY_ONCE
namespace sprat::collectives {

HWY_EXPORT(run_integers);

void reduce_integers(const CheckedReduction& reduction) {
  HWY_DYNAMIC_DISPATCH(run_integers)(reduction);
}

}  // namespace sprat::collectives
#endif
