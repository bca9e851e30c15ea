// Collectives with a root: check the contract, state the problem, post it.
#include "collectives/call.hpp"
#include "comm/base/check.hpp"

namespace sprat {

using namespace collectives;

namespace {

/// What ranks other than the root pass for the buffer that only the root has. What the caller gave
/// there is not looked at.
Elements unused(DType dtype) { return {nullptr, 0, dtype}; }

void check_whole(ConstElements part, ConstElements whole, int size) {
  const auto ranks = static_cast<std::size_t>(size);
  require(whole.count % ranks == 0 && whole.count / ranks == part.count, "whole has ", whole.count,
          " elements; it must have ", size, " times the ", part.count, " of a part");
}

}  // namespace

[[gnu::hot]] Work Communicator::reduce(ConstElements in, Elements out, int root,
                                       const Reduction& op, Options options) {
  check_rank("root", root, size());
  check_memory("in", in);
  if (rank() != root) {
    check_reduction(in.dtype, in.dtype, op);
    return post(*impl_, {Collective::reduce, in.count, in, unused(in.dtype), op, root}, options);
  }
  check_memory("out", out);
  require(in.count == out.count, "in has ", in.count, " elements and out ", out.count,
          "; they must be equal");
  check_reduction(in.dtype, out.dtype, op);
  check_overlap(in, out, in.data, out.data);
  return post(*impl_, {Collective::reduce, in.count, in, out, op, root}, options);
}

[[gnu::hot]] Work Communicator::gather(ConstElements part, Elements whole, int root,
                                       Options options) {
  check_rank("root", root, size());
  check_memory("part", part);
  check_blocks("part", part, size());
  Call call{.collective = Collective::gather,
            .count = part.count,
            .in = part,
            .out = unused(part.dtype),
            .root = root};
  if (rank() == root) {
    check_memory("whole", whole);
    check_whole(part, whole, size());
    check_types(part.dtype, whole.dtype);
    check_overlap(part, whole, part.data, block(whole.data, root, part.bytes()));
    call.out = whole;
  }
  return post(*impl_, call, options);
}

[[gnu::hot]] Work Communicator::scatter(ConstElements whole, Elements part, int root,
                                        Options options) {
  check_rank("root", root, size());
  check_memory("part", part);
  check_blocks("part", part, size());
  Call call{.collective = Collective::scatter,
            .count = part.count,
            .in = unused(part.dtype),
            .out = part,
            .root = root};
  if (rank() == root) {
    check_memory("whole", whole);
    check_whole(part, whole, size());
    check_types(whole.dtype, part.dtype);
    check_overlap(whole, part, block(whole.data, root, part.bytes()), part.data);
    call.in = whole;
  }
  return post(*impl_, call, options);
}

[[gnu::hot]] Work Communicator::gatherv(ConstElements part, Elements whole,
                                        std::span<const std::size_t> counts, int root,
                                        Options options) {
  check_rank("root", root, size());
  check_memory("part", part);
  Call call{.collective = Collective::gatherv,
            .count = part.count,
            .in = part,
            .out = unused(part.dtype),
            .root = root};
  if (rank() == root) {
    check_memory("whole", whole);
    call.counts = check_counts("counts", counts, size(), "whole", whole.count);
    require(call.counts->count(root) == part.count, "counts gives ", call.counts->count(root),
            " elements to the root; its part has ", part.count);
    check_types(part.dtype, whole.dtype);
    check_overlap(part, whole, part.data, block(whole.data, *call.counts, root, whole.dtype));
    call.out = whole;
  }
  return post(*impl_, call, options);
}

[[gnu::hot]] Work Communicator::scatterv(ConstElements whole, Elements part,
                                         std::span<const std::size_t> counts, int root,
                                         Options options) {
  check_rank("root", root, size());
  check_memory("part", part);
  Call call{.collective = Collective::scatterv,
            .count = part.count,
            .in = unused(part.dtype),
            .out = part,
            .root = root};
  if (rank() == root) {
    check_memory("whole", whole);
    call.counts = check_counts("counts", counts, size(), "whole", whole.count);
    require(call.counts->count(root) == part.count, "counts gives ", call.counts->count(root),
            " elements to the root; its part has ", part.count);
    check_types(whole.dtype, part.dtype);
    check_overlap(whole, part, block(whole.data, *call.counts, root, whole.dtype), part.data);
    call.in = whole;
  }
  return post(*impl_, call, options);
}

}  // namespace sprat
