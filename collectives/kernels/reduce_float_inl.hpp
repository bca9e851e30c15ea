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
void average(const Request& request) {
  using Lane = typename Format::Lane;
  using Blocks = Walk<Format, Sum>;
  const auto ranks = static_cast<Lane>(request.ranks);
  if ((request.ranks & (request.ranks - 1)) == 0) {  // Multiplying is dividing, bit for bit.
    return walk_all<Format, Sum>(request, Scaled<Output>{Lane{1} / ranks, request.past_cache});
  }
  auto* const to = static_cast<typename Output::Element*>(request.to);
  alignas(64) Lane sums[Blocks::block_count];
  const Lane* const from[] = {sums};
  for (std::size_t i = 0; i < request.count; i += Blocks::block_count) {
    const std::size_t left = request.count - i;
    const std::size_t count = left < Blocks::block_count ? left : Blocks::block_count;
    Blocks(request, i, count).evaluate(request.covers, Exact<Lane>(), sums);
    sweep<Native<Lane>, Sum, 1>(from, Divided<Output>{ranks}, to + i, count);
  }
}

template <class Format, class Op>
void reduce_with(const Request& request) {
  using Lane = typename Format::Lane;
  if (!request.complete) {
    return walk_all<Format, Op>(request, Exact<Lane>());
  }
  // A single rank's contribution enters no tree.
  const Lane scale = request.covers.size() == 1 ? static_cast<Lane>(request.factor) : Lane{1};
  if constexpr (!std::is_same_v<Format, Native<Lane>>) {
    if (request.output != request.input) {
      return walk_all<Format, Op>(request, Scaled<Native<Lane>>{scale, request.past_cache});
    }
  }
  walk_all<Format, Op>(request, Scaled<Format>{scale, request.past_cache});
}

template <class Format>
void average_of(const Request& request) {
  using Lane = typename Format::Lane;
  if (!request.complete) {
    return walk_all<Format, Sum>(request, Exact<Lane>());
  }
  if constexpr (!std::is_same_v<Format, Native<Lane>>) {
    if (request.output != request.input) {
      return average<Format, Native<Lane>>(request);
    }
  }
  average<Format, Format>(request);
}

template <class Format>
void reduce_floats_of(const Request& request) {
  switch (request.op) {
    case ReduceOp::sum:
    case ReduceOp::premultiplied_sum:
      return reduce_with<Format, Sum>(request);
    case ReduceOp::prod:
      return reduce_with<Format, Prod>(request);
    case ReduceOp::min:
      return reduce_with<Format, Min>(request);
    case ReduceOp::max:
      return reduce_with<Format, Max>(request);
    case ReduceOp::avg:
      return average_of<Format>(request);
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
    case ReduceOp::land:
    case ReduceOp::lor:
    case ReduceOp::user:
      return;  // reduce() refuses these or sends them elsewhere.
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sprat::collectives
HWY_AFTER_NAMESPACE();

#endif
