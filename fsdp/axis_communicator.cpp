// Collectives put into the axis's queue, with their payload counted.
#include "fsdp/axis_communicator.hpp"

namespace sprat::fsdp {

std::uint64_t AxisCommunicator::share(std::size_t bytes) const {
  const auto ranks = static_cast<std::uint64_t>(size());
  return bytes / ranks * (ranks - 1);
}

Pending AxisCommunicator::all_gather(ConstElements part, Elements whole, std::uint64_t& sent) {
  if (size() == 1) {
    return {};
  }
  sent += share(whole.bytes());
  return queue_->submit([ranks = ranks_, part, whole] { return ranks->all_gather(part, whole); });
}

Pending AxisCommunicator::reduce_scatter(ConstElements whole, Elements part, std::uint64_t& sent) {
  if (size() == 1) {
    return {};
  }
  sent += share(whole.bytes());
  return queue_->submit(
      [ranks = ranks_, whole, part] { return ranks->reduce_scatter(whole, part); });
}

Pending AxisCommunicator::all_reduce(ConstElements in, Elements out, std::uint64_t& sent) {
  if (size() == 1) {
    return {};
  }
  sent += share(in.bytes()) + share(out.bytes());
  return queue_->submit([ranks = ranks_, in, out] { return ranks->all_reduce(in, out); });
}

}  // namespace sprat::fsdp
