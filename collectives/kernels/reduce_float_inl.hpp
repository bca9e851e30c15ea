// Reductions of floating-point formats: partials as they are, complete results rounded once.
// Compiled once per instruction set.
#if defined(SPRAT_COLLECTIVES_REDUCE_FLOAT_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef SPRAT_COLLECTIVES_REDUCE_FLOAT_INL_HPP
#undef SPRAT_COLLECTIVES_REDUCE_FLOAT_INL_HPP
#else
#define SPRAT_COLLECTIVES_REDUCE_FLOAT_INL_HPP
#endif

#include "collectives/kernels/reduce_walk_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace sprat::collectives {
namespace HWY_NAMESPACE {

/// The complete sum, divided by the number of ranks, as Output.
template <class Format, class Output>
void average(const CheckedReduction& reduction) {
  using Lane = typename Format::Lane;
  using Blocks = Walk<Format, Sum>;
  const auto ranks = static_cast<Lane>(reduction.arithmetic.ranks);
  if ((reduction.arithmetic.ranks & (reduction.arithmetic.ranks - 1)) ==
      0) {  // Multiplying is dividing, bit for bit.
    return walk_all<Format, Sum>(reduction,
                                 Scaled<Output>{Lane{1} / ranks, reduction.arithmetic.past_cache});
  }
  auto* const to = static_cast<typename Output::Element*>(reduction.to);
  alignas(64) Lane sums[Blocks::block_count];
  const Lane* const from[] = {sums};
  for (std::size_t i = 0; i < reduction.count; i += Blocks::block_count) {
    const std::size_t left = reduction.count - i;
    const std::size_t count = left < Blocks::block_count ? left : Blocks::block_count;
    Blocks(reduction, i, count).evaluate(reduction.covers, Exact<Lane>(), sums);
    sweep<Native<Lane>, Sum, 1>(from, Divided<Output>{ranks}, to + i, count);
  }
}

template <class Format, class Op>
void reduce_with(const CheckedReduction& reduction) {
  using Lane = typename Format::Lane;
  if (!reduction.arithmetic.complete) {
    return walk_all<Format, Op>(reduction, Exact<Lane>());
  }
  // A single rank's contribution enters no tree.
  const Lane scale =
      reduction.covers.size() == 1 ? static_cast<Lane>(reduction.arithmetic.factor) : Lane{1};
  if constexpr (!std::is_same_v<Format, Native<Lane>>) {
    if (reduction.arithmetic.output != reduction.arithmetic.input) {
      return walk_all<Format, Op>(reduction,
                                  Scaled<Native<Lane>>{scale, reduction.arithmetic.past_cache});
    }
  }
  walk_all<Format, Op>(reduction, Scaled<Format>{scale, reduction.arithmetic.past_cache});
}

template <class Format>
void average_of(const CheckedReduction& reduction) {
  using Lane = typename Format::Lane;
  if (!reduction.arithmetic.complete) {
    return walk_all<Format, Sum>(reduction, Exact<Lane>());
  }
  if constexpr (!std::is_same_v<Format, Native<Lane>>) {
    if (reduction.arithmetic.output != reduction.arithmetic.input) {
      return average<Format, Native<Lane>>(reduction);
    }
  }
  average<Format, Format>(reduction);
}

template <class Format>
void reduce_floats_of(const CheckedReduction& reduction) {
  switch (reduction.arithmetic.op) {
    case ReduceOp::sum:
    case ReduceOp::premultiplied_sum:
      return reduce_with<Format, Sum>(reduction);
    case ReduceOp::prod:
      return reduce_with<Format, Prod>(reduction);
    case ReduceOp::min:
      return reduce_with<Format, Min>(reduction);
    case ReduceOp::max:
      return reduce_with<Format, Max>(reduction);
    case ReduceOp::avg:
      return average_of<Format>(reduction);
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
    case ReduceOp::land:
    case ReduceOp::lor:
    case ReduceOp::user:
      return;  // reduce() refuses these or sends them elsewhere.
  }
}

/// The complete result of Count ranks' contributions.
template <class Format, class Op, int Count>
void sweep_all(const void* const* contributions, void* to, std::size_t count) {
  const typename Format::Element* from[Count];
  for (int k = 0; k < Count; ++k) {
    from[k] = static_cast<const typename Format::Element*>(contributions[k]);
  }
  sweep<Format, Op, Count>(from, Scaled<Format>{typename Format::Lane{1}, false},
                           static_cast<typename Format::Element*>(to), count);
}

/// Only sweeps that walks use as well: each is code for every instruction set.
template <class Format, class Op>
PreparedReduction::Sweep sweep_with(int ranks) {
  if (ranks == 2) {
    return sweep_all<Format, Op, 2>;
  }
  if constexpr (std::is_same_v<Op, Sum>) {
    switch (ranks) {
      case 3:
        return sweep_all<Format, Op, 3>;
      case 4:
        return sweep_all<Format, Op, 4>;
      case 8:
        return sweep_all<Format, Op, 8>;
      default:
        break;
    }
  }
  return nullptr;
}

template <class Format>
PreparedReduction::Sweep sweep_of(const Arithmetic& arithmetic) {
  switch (arithmetic.op) {
    case ReduceOp::sum:
      return sweep_with<Format, Sum>(arithmetic.ranks);
    case ReduceOp::prod:
      return sweep_with<Format, Prod>(arithmetic.ranks);
    case ReduceOp::min:
      return sweep_with<Format, Min>(arithmetic.ranks);
    case ReduceOp::max:
      return sweep_with<Format, Max>(arithmetic.ranks);
    default:
      return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sprat::collectives
HWY_AFTER_NAMESPACE();

#endif
