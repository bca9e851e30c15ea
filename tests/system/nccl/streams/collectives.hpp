// Every collective of NCCL's on memory of a device, with the values that it must have.
#pragma once

#include "tests/system/nccl/streams/device_memory.hpp"

namespace sprat::nccl_tests {

/// Every collective once, on rank `rank` of `ranks`.
inline void check_collectives(ncclComm_t comm, int rank, int ranks, const Type& type) {
  constexpr std::size_t count = 1'001;
  const auto all = static_cast<std::size_t>(ranks);
  const Stream stream;
  const cudaStream_t queue = as_stream(stream.handle());
  const auto expect = [&](const OnDevice& memory, const Bytes& expected, const char* what) {
    EXPECT_EQ(memory.read(), expected) << what << " of " << type.name << " on rank " << rank;
  };
  const Bytes ones = filled(type, count, 1), numbers = filled(type, count, rank + 1);
  const Bytes total = filled(type, count, ranks), none = filled(type, count, 0);
  const Bytes in_order =
      make(type, count * all, [](std::size_t at) { return static_cast<double>(at / count + 1); });
  const OnDevice one(ones, stream.handle()), mine(numbers, stream.handle()),
      out(none, stream.handle());
  const OnDevice place(ones, stream.handle()), whole(filled(type, count * all, 1), stream.handle());
  const OnDevice gathered(filled(type, count * all, 0), stream.handle());
  EXPECT_SUCCESS(ncclAllReduce(one.data(), out.data(), count, type.type, ncclSum, comm, queue));
  expect(out, total, "all_reduce");
  EXPECT_SUCCESS(ncclAllReduce(place.data(), place.data(), count, type.type, ncclSum, comm, queue));
  expect(place, total, "all_reduce in place");
  EXPECT_SUCCESS(ncclBroadcast(mine.data(), out.data(), count, type.type, 1, comm, queue));
  expect(out, filled(type, count, 2), "broadcast");
  EXPECT_SUCCESS(
      ncclReduceScatter(whole.data(), out.data(), count, type.type, ncclSum, comm, queue));
  expect(out, total, "reduce_scatter");
  EXPECT_SUCCESS(ncclAllGather(mine.data(), gathered.data(), count, type.type, comm, queue));
  expect(gathered, in_order, "all_gather");
  EXPECT_SUCCESS(ncclAlltoAll(gathered.data(), whole.data(), count, type.type, comm, queue));
  expect(whole, filled(type, count * all, rank + 1), "all_to_all");
  EXPECT_SUCCESS(ncclScatter(gathered.data(), out.data(), count, type.type, 0, comm, queue));
  expect(out, numbers, "scatter");
  EXPECT_SUCCESS(ncclReduce(one.data(), out.data(), count, type.type, ncclSum, 0, comm, queue));
  expect(out, rank == 0 ? total : numbers, "reduce");
  const OnDevice collected(filled(type, count * all, 0), stream.handle());
  EXPECT_SUCCESS(ncclGather(mine.data(), collected.data(), count, type.type, 0, comm, queue));
  expect(collected, rank == 0 ? in_order : filled(type, count * all, 0), "gather");
  // A factor that the stream brings to the device, behind which the operation runs.
  ncclRedOp_t op = ncclSum;
  const OnDevice factor(filled(type, 1, 2), stream.handle());
  EXPECT_SUCCESS(ncclRedOpCreatePreMulSum(&op, factor.data(), type.type, ncclScalarDevice, comm));
  EXPECT_SUCCESS(ncclAllReduce(one.data(), out.data(), count, type.type, op, comm, queue));
  expect(out, filled(type, count, 2 * ranks), "premultiplied sum");
  // In place, a rank's block becomes the sum, and the others' are as they were.
  const OnDevice blocks(filled(type, count * all, 1), stream.handle());
  auto* const own =
      static_cast<std::byte*>(blocks.data()) + static_cast<std::size_t>(rank) * count * type.bytes;
  EXPECT_SUCCESS(ncclReduceScatter(blocks.data(), own, count, type.type, op, comm, queue));
  expect(blocks,
         make(type, count * all,
              [&](std::size_t at) {
                return at / count == static_cast<std::size_t>(rank) ? 2. * ranks : 1.;
              }),
         "premultiplied sum, scattered in place");
  // Into its first block, which is in place on rank 0 alone.
  const OnDevice over(filled(type, count * all, 1), stream.handle());
  EXPECT_SUCCESS(ncclReduceScatter(over.data(), over.data(), count, type.type, op, comm, queue));
  expect(over,
         make(type, count * all, [&](std::size_t at) { return at < count ? 2. * ranks : 1.; }),
         "premultiplied sum, scattered into the first block");
  EXPECT_SUCCESS(ncclRedOpDestroy(op, comm));
}

}  // namespace sprat::nccl_tests
