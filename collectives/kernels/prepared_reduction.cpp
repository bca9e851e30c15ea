#include "collectives/kernels/prepared_reduction.hpp"

#include "collectives/kernels/reduce_environment.hpp"
#include "collectives/kernels/reduce_kernels.hpp"

namespace sprat::collectives {
namespace {

/// All ranks' own contributions make a complete result in the input's type.
bool is_simple(const Arithmetic& arithmetic, std::span<const RankRange> covers) {
  if (!arithmetic.complete || arithmetic.past_cache || arithmetic.output != arithmetic.input ||
      covers.size() != static_cast<std::size_t>(arithmetic.ranks) ||
      covers.size() > PreparedReduction::most_contributions) {
    return false;
  }
  int rank = 0;
  for (const RankRange& one : covers) {
    if (one != RankRange{rank, rank + 1}) {
      return false;
    }
    ++rank;
  }
  return true;
}

}  // namespace

PreparedReduction PreparedReduction::of(const Arithmetic& arithmetic,
                                        std::span<const RankRange> covers) {
  if (!is_simple(arithmetic, covers)) {
    return {};
  }
  switch (arithmetic.input) {
    case DType::f32:
    case DType::f64:
      return PreparedReduction(sweep_of_floats(arithmetic));
    case DType::f16:
    case DType::bf16:
      return PreparedReduction(sweep_of_float16(arithmetic));
    default:
      return {};
  }
}

[[gnu::hot]] void PreparedReduction::run(const void* const* contributions, void* to,
                                         std::size_t count) const {
  const PlainArithmetic mode;
  sweep_(contributions, to, count);
}

}  // namespace sprat::collectives
