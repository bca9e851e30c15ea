// Collectives of blocks that differ in length: check the contract, state the problem, post it.
#include "collectives/call.hpp"
#include "comm/base/check.hpp"

namespace sprat {

using namespace collectives;

[[gnu::hot]] Work Communicator::all_gatherv(ConstElements part, Elements whole,
                                            std::span<const std::size_t> counts, Options options) {
  check_memory("part", part);
  check_memory("whole", whole);
  auto blocks = check_counts("counts", counts, size(), "whole", whole.count);
  require(blocks->count(rank()) == part.count, "counts gives ", blocks->count(rank()),
          " elements to rank ", rank(), "; its part has ", part.count);
  check_types(part.dtype, whole.dtype);
  check_overlap(part, whole, part.data, block(whole.data, *blocks, rank(), whole.dtype));
  Call call{
      .collective = Collective::all_gather, .count = blocks->largest(), .in = part, .out = whole};
  call.counts = std::move(blocks);
  return post(*impl_, call, options);
}

[[gnu::hot]] Work Communicator::reduce_scatterv(ConstElements whole, Elements part,
                                                std::span<const std::size_t> counts,
                                                const Reduction& op, Options options) {
  check_memory("whole", whole);
  check_memory("part", part);
  auto blocks = check_counts("counts", counts, size(), "whole", whole.count);
  require(blocks->count(rank()) == part.count, "counts gives ", blocks->count(rank()),
          " elements to rank ", rank(), "; its part has ", part.count);
  check_reduction(whole.dtype, part.dtype, op);
  check_overlap(whole, part, block(whole.data, *blocks, rank(), whole.dtype), part.data);
  Call call{.collective = Collective::reduce_scatter,
            .count = blocks->largest(),
            .in = whole,
            .out = part,
            .op = op};
  call.counts = std::move(blocks);
  return post(*impl_, call, options);
}

[[gnu::hot]] Work Communicator::all_to_allv(ConstElements in, Elements out,
                                            std::span<const std::size_t> in_counts,
                                            std::span<const std::size_t> out_counts,
                                            Options options) {
  check_memory("in", in);
  check_memory("out", out);
  Call call{.collective = Collective::all_to_allv, .in = in, .out = out};
  call.counts = check_counts("in_counts", in_counts, size(), "in", in.count);
  call.out_counts = check_counts("out_counts", out_counts, size(), "out", out.count);
  require(call.counts->count(rank()) == call.out_counts->count(rank()), "in_counts gives ",
          call.counts->count(rank()), " elements from rank ", rank(), " to itself, out_counts ",
          call.out_counts->count(rank()), "; they must be equal");
  check_types(in.dtype, out.dtype);
  const auto* a = static_cast<const std::byte*>(in.data);
  const auto* b = static_cast<const std::byte*>(out.data);
  require(a + in.bytes() <= b || b + out.bytes() <= a,
          "in and out overlap; all_to_allv cannot work in place, for blocks that differ in length "
          "do not swap places: pass another buffer");
  return post(*impl_, call, options);
}

}  // namespace sprat
