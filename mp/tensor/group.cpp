// The ranks of a tensor parallel group: who has which rows, and collectives that are counted.
#include <algorithm>

#include "comm/base/check.hpp"
#include "sprat/tensor.hpp"

namespace sprat::tensor {
namespace {

/// A null pointer of no elements is as good as any other.
ConstElements floats_at(const float* data, std::size_t count) { return {data, count, DType::f32}; }

}  // namespace

Group::Group(Communicator& ranks, const Parallelism& how) : ranks_(&ranks), how_(how) {
  require(ranks.size() == how.degree, "a tensor parallel degree of ", how.degree,
          " is given to a communicator of ", ranks.size(),
          " ranks; make one by split_along(world, layout, Axes::tensor)");
}

Part Group::own_rows(int rows) const {
  return how_.sequence_parallel ? own_part(rows) : Part{0, rows};
}

// What a backend's pieces cannot be dealt to has one: its bits are of no cut, anyway.
int Group::own_row_pieces(int pieces) const noexcept {
  return how_.sequence_parallel ? std::max(pieces / how_.degree, 1) : pieces;
}

Work Group::sum(std::span<float> data) {
  if (how_.degree == 1) {
    return {};
  }
  traffic_.all_reduced += data.size_bytes();
  return ranks_->all_reduce(elements(data));
}

Work Group::highest(std::span<float> data) {
  if (how_.degree == 1) {
    return {};
  }
  traffic_.all_reduced += data.size_bytes();
  return ranks_->all_reduce(elements(data), ReduceOp::max);
}

Work Group::gather(const float* part, std::span<float> whole, std::span<const std::size_t> counts) {
  if (how_.degree == 1) {
    return {};
  }
  traffic_.gathered += whole.size_bytes();
  return ranks_->all_gatherv(floats_at(part, counts[std::size_t(rank())]), elements(whole), counts);
}

Work Group::gather(std::span<const std::int32_t> part, std::span<std::int32_t> whole,
                   std::span<const std::size_t> counts) {
  if (how_.degree == 1) {
    std::ranges::copy(part, whole.begin());
    return {};
  }
  traffic_.gathered += whole.size_bytes();
  return ranks_->all_gatherv(elements(part), elements(whole), counts);
}

Work Group::scatter_sum(std::span<float> whole, float* part, std::span<const std::size_t> counts) {
  if (how_.degree == 1) {
    return {};
  }
  traffic_.scattered += whole.size_bytes();
  return ranks_->reduce_scatterv(elements(std::span<const float>(whole)),
                                 {part, counts[std::size_t(rank())], DType::f32}, counts);
}

}  // namespace sprat::tensor
