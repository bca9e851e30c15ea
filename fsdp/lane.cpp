// Collectives put into the axis's queue, with their payload counted.
#include "fsdp/lane.hpp"

namespace sprat::fsdp {

std::uint64_t Lane::share(std::size_t bytes) const {
  const auto ranks = static_cast<std::uint64_t>(size());
  return bytes / ranks * (ranks - 1);
}

Pending Lane::all_gather(ConstElements part, Elements whole, std::uint64_t& sent) {
  if (size() == 1) {
    return {};
  }
  sent += share(whole.bytes());
  return queue_->submit([ranks = ranks_, part, whole] { return ranks->all_gather(part, whole); });
}

Pending Lane::reduce_scatter(ConstElements whole, Elements part, std::uint64_t& sent) {
  if (size() == 1) {
    return {};
  }
  sent += share(whole.bytes());
  return queue_->submit(
      [ranks = ranks_, whole, part] { return ranks->reduce_scatter(whole, part); });
}

Pending Lane::all_reduce(ConstElements in, Elements out, std::uint64_t& sent) {
  if (size() == 1) {
    return {};
  }
  sent += share(in.bytes()) + share(out.bytes());
  return queue_->submit([ranks = ranks_, in, out] { return ranks->all_reduce(in, out); });
}

}  // namespace sprat::fsdp
