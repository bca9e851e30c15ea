// Ranks that are threads of one process, all on one device, and one thread that calls for all
// ranks: groups over several communicators, on the stand-in for CUDA's driver and runtime.
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/system/fake_cuda/fake_cuda.h"
#include "tests/system/nccl/streams/collectives.hpp"
#include "tests/system/nccl/streams/device_memory.hpp"

namespace sprat::nccl_tests {
namespace {

constexpr std::size_t elements = 2'000;

const Type& ints() { return type_of(ncclInt32); }

void sum(const OnDevice& data, ncclComm_t comm, const Stream& stream) {
  EXPECT_SUCCESS(ncclAllReduce(data.data(), data.data(), elements, ncclInt32, ncclSum, comm,
                               as_stream(stream.handle())));
}

ncclResult_t async_error_of(ncclComm_t comm) {
  ncclResult_t state = ncclInternalError;
  EXPECT_SUCCESS(ncclCommGetAsyncError(comm, &state));
  return state;
}

class NcclThreadsOfOneDevice : public testing::TestWithParam<int> {};

TEST_P(NcclThreadsOfOneDevice, have_right_values) {
  const int ranks = GetParam();
  ncclUniqueId id{};
  EXPECT_SUCCESS(ncclGetUniqueId(&id));
  fake_cuda_seed(static_cast<unsigned>(ranks));
  run_threads(ranks, [&](int rank) {
    ncclComm_t comm = nullptr;
    EXPECT_SUCCESS(ncclCommInitRank(&comm, ranks, id, rank));
    for (const ncclDataType_t type : {ncclFloat32, ncclInt64}) {
      check_collectives(comm, rank, ranks, type_of(type));
    }
    EXPECT_SUCCESS(ncclCommFinalize(comm));
    EXPECT_SUCCESS(ncclCommDestroy(comm));
  });
  fake_cuda_seed(0);
}

INSTANTIATE_TEST_SUITE_P(Ranks, NcclThreadsOfOneDevice, testing::Values(2, 5, 8));

// Of which each waits for all others before the next one is called, were it not for the group.
TEST(NcclOneDevice, one_thread_calls_for_all_ranks_on_one_stream) {
  constexpr int ranks = 4;
  const std::vector<ncclComm_t> comms = init_all(ranks);
  const Stream stream;
  std::vector<std::unique_ptr<OnDevice>> data;
  for (int rank = 0; rank < ranks; ++rank) {
    data.push_back(std::make_unique<OnDevice>(filled(ints(), elements, rank), stream.handle()));
  }
  for (int round = 0; round < 2; ++round) {
    EXPECT_SUCCESS(ncclGroupStart());
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      sum(*data[rank], comms[rank], stream);
      // The second has the first one's sum, of each rank.
      EXPECT_SUCCESS(ncclBroadcast(data[rank]->data(), data[rank]->data(), elements, ncclInt32, 1,
                                   comms[rank], as_stream(stream.handle())));
      // The third would stand behind the second, which a rank that comes later has yet to start.
      sum(*data[rank], comms[rank], stream);
    }
    EXPECT_SUCCESS(ncclGroupEnd());
  }
  for (const auto& one : data) {
    EXPECT_EQ(one->read(), filled(ints(), elements, 6 * ranks * ranks * ranks));
  }
  // As many parts as ranks, by one thread too.
  std::vector<ncclComm_t> parts(ranks, nullptr);
  EXPECT_SUCCESS(ncclGroupStart());
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    EXPECT_SUCCESS(
        ncclCommSplit(comms[rank], static_cast<int>(rank % 2), 0, &parts[rank], nullptr));
  }
  EXPECT_SUCCESS(ncclGroupEnd());
  EXPECT_SUCCESS(ncclGroupStart());
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    sum(*data[rank], parts[rank], stream);
  }
  EXPECT_SUCCESS(ncclGroupEnd());
  for (const auto& one : data) {
    EXPECT_EQ(one->read(), filled(ints(), elements, 6 * ranks * ranks * ranks * 2));
  }
  for (const auto& all : {parts, comms}) {
    for (const ncclComm_t comm : all) {  // one after the other
      EXPECT_SUCCESS(ncclCommDestroy(comm));
    }
  }
}

// Half of the ranks come to communicators and messages in the other order, all on one stream each.
TEST(NcclOneDevice, groups_of_threads_have_communicators_and_messages_in_any_order) {
  constexpr int ranks = 3;
  const std::vector<ncclComm_t> firsts = init_all(ranks), seconds = init_all(ranks);
  for (const unsigned seed : {0u, 1u, 2u, 3u}) {
    fake_cuda_seed(seed);
    run_threads(ranks, [&](int rank) {
      const auto at = static_cast<std::size_t>(rank);
      const Stream stream;
      const cudaStream_t queue = as_stream(stream.handle());
      const OnDevice one(filled(ints(), elements, 1), queue),
          two(filled(ints(), elements, 2), queue);
      const OnDevice out(filled(ints(), elements, rank), queue),
          in(filled(ints(), elements, 9), queue);
      const auto messages = [&] {
        EXPECT_SUCCESS(ncclRecv(in.data(), elements, ncclInt32, (rank + ranks - 1) % ranks,
                                firsts[at], queue));
        EXPECT_SUCCESS(
            ncclSend(out.data(), elements, ncclInt32, (rank + 1) % ranks, firsts[at], queue));
      };
      const auto sums = [&](const OnDevice& data, ncclComm_t comm) {
        for (int round = 0; round < 3; ++round) {
          sum(data, comm, stream);
        }
      };
      EXPECT_SUCCESS(ncclGroupStart());
      if (rank % 2 == 0) {
        messages();
        sums(one, firsts[at]);
        sums(two, seconds[at]);
      } else {
        sums(two, seconds[at]);
        sums(one, firsts[at]);
        messages();
      }
      EXPECT_SUCCESS(ncclGroupEnd());
      EXPECT_EQ(one.read(), filled(ints(), elements, ranks * ranks * ranks));
      EXPECT_EQ(two.read(), filled(ints(), elements, 2 * ranks * ranks * ranks));
      EXPECT_EQ(in.read(), filled(ints(), elements, (rank + ranks - 1) % ranks));
    });
  }
  fake_cuda_seed(0);
  destroy_all(firsts);
  destroy_all(seconds);
}

// Two communicators in opposite orders, on two streams, without a group.
TEST(NcclOneDevice, communicators_on_streams_of_their_own_may_come_in_any_order) {
  constexpr int ranks = 2;
  const std::vector<ncclComm_t> firsts = init_all(ranks), seconds = init_all(ranks);
  run_threads(ranks, [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    const Stream one_stream, two_stream;
    const OnDevice one(filled(ints(), elements, 1), one_stream.handle());
    const OnDevice two(filled(ints(), elements, 2), two_stream.handle());
    for (int round = 0; round < 5; ++round) {
      if ((rank + round) % 2 == 0) {
        sum(one, firsts[at], one_stream);
        sum(two, seconds[at], two_stream);
      } else {
        sum(two, seconds[at], two_stream);
        sum(one, firsts[at], one_stream);
      }
    }
    EXPECT_EQ(one.read(), filled(ints(), elements, 1 << 5));
    EXPECT_EQ(two.read(), filled(ints(), elements, 2 << 5));
  });
  destroy_all(firsts);
  destroy_all(seconds);
}

TEST(NcclOneDevice, nothing_may_be_counted_and_pointed_to) {
  constexpr int ranks = 2;
  const std::vector<ncclComm_t> comms = init_all(ranks);
  run_threads(ranks, [&](int rank) {
    const ncclComm_t comm = comms[static_cast<std::size_t>(rank)];
    const Stream stream;
    const cudaStream_t queue = as_stream(stream.handle());
    float factor = 2;
    ncclRedOp_t op = ncclSum;
    EXPECT_SUCCESS(
        ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarHostImmediate, comm));
    for (const ncclRedOp_t each : {ncclSum, op}) {
      EXPECT_SUCCESS(ncclAllReduce(nullptr, nullptr, 0, ncclFloat32, each, comm, queue));
      EXPECT_SUCCESS(ncclReduce(nullptr, nullptr, 0, ncclFloat32, each, 1, comm, queue));
      EXPECT_SUCCESS(ncclReduceScatter(nullptr, nullptr, 0, ncclFloat32, each, comm, queue));
    }
    EXPECT_SUCCESS(ncclBroadcast(nullptr, nullptr, 0, ncclFloat32, 1, comm, queue));
    EXPECT_SUCCESS(ncclAllGather(nullptr, nullptr, 0, ncclFloat32, comm, queue));
    EXPECT_SUCCESS(ncclAlltoAll(nullptr, nullptr, 0, ncclFloat32, comm, queue));
    EXPECT_SUCCESS(ncclGather(nullptr, nullptr, 0, ncclFloat32, 1, comm, queue));
    EXPECT_SUCCESS(ncclScatter(nullptr, nullptr, 0, ncclFloat32, 1, comm, queue));
    for (const int peer : {1 - rank, rank}) {
      EXPECT_SUCCESS(ncclGroupStart());
      EXPECT_SUCCESS(ncclSend(nullptr, 0, ncclFloat32, peer, comm, queue));
      EXPECT_SUCCESS(ncclRecv(nullptr, 0, ncclFloat32, peer, comm, queue));
      EXPECT_SUCCESS(ncclGroupEnd());
    }
    EXPECT_EQ(cudaStreamSynchronize(queue), 0);
    EXPECT_EQ(async_error_of(comm), ncclSuccess) << ncclGetLastError(comm);
    EXPECT_SUCCESS(ncclRedOpDestroy(op, comm));
  });
  destroy_all(comms);
}

// The program destroys an op, and ends its communicators, as soon as its calls have returned.
TEST(NcclOneDevice, what_is_enqueued_outlives_its_op_and_ends_before_its_communicator) {
  constexpr int ranks = 2;
  const std::vector<ncclComm_t> comms = init_all(ranks);
  const Stream stream;
  Gate gate;
  const OnDevice first(filled(ints(), elements, 1), stream.handle());
  const OnDevice second(filled(ints(), elements, 2), stream.handle());
  const std::pair<const OnDevice*, ncclComm_t> own[] = {{&first, comms[0]}, {&second, comms[1]}};
  EXPECT_EQ(cudaStreamSynchronize(stream.handle()), 0);
  gate.hold(stream.handle());
  EXPECT_SUCCESS(ncclGroupStart());
  for (const auto& [data, comm] : own) {
    int factor = 3;
    ncclRedOp_t op = ncclSum;
    EXPECT_SUCCESS(
        ncclRedOpCreatePreMulSum(&op, &factor, ncclInt32, ncclScalarHostImmediate, comm));
    EXPECT_SUCCESS(ncclAllReduce(data->data(), data->data(), elements, ncclInt32, op, comm,
                                 as_stream(stream.handle())));
    EXPECT_SUCCESS(ncclRedOpDestroy(op, comm));
  }
  EXPECT_SUCCESS(ncclGroupEnd());
  std::thread opens([&gate] { gate.open(); });
  for (const ncclComm_t comm : comms) {
    EXPECT_SUCCESS(ncclCommDestroy(comm));
  }
  opens.join();
  EXPECT_EQ(first.read(), filled(ints(), elements, 9));
  EXPECT_EQ(second.read(), filled(ints(), elements, 9));
}

TEST(NcclOneDevice, an_abort_ends_one_communicator_of_a_group_under_way) {
  const std::vector<ncclComm_t> sick = init_all(2), well = init_all(2);
  const Stream stream, other;
  const OnDevice one(filled(ints(), elements, 1), stream.handle());
  const OnDevice two(filled(ints(), elements, 2), stream.handle());
  const OnDevice three(filled(ints(), elements, 3), other.handle());
  EXPECT_SUCCESS(ncclGroupStart());
  sum(one, sick[0], stream);
  sum(two, well[0], stream);
  EXPECT_SUCCESS(ncclGroupEnd());
  EXPECT_SUCCESS(ncclCommAbort(sick[1]));  // which has called nothing
  sum(three, well[1], other);
  EXPECT_EQ(two.read(), filled(ints(), elements, 5));
  EXPECT_EQ(three.read(), filled(ints(), elements, 5));
  EXPECT_EQ(async_error_of(sick[0]), ncclRemoteError);
  EXPECT_EQ(async_error_of(well[0]), ncclSuccess);
  // Later calls of the sick one hold up nobody, in whichever order they come.
  EXPECT_SUCCESS(ncclGroupStart());
  EXPECT_SUCCESS(ncclAllReduce(one.data(), one.data(), elements, ncclInt32, ncclSum, sick[0],
                               as_stream(stream.handle())));
  sum(two, well[0], stream);
  const ncclResult_t ended = ncclGroupEnd();
  EXPECT_TRUE(ended == ncclSuccess || ended == ncclRemoteError) << ended;
  sum(three, well[1], other);
  EXPECT_EQ(two.read(), filled(ints(), elements, 10));
  EXPECT_EQ(three.read(), filled(ints(), elements, 10));
  EXPECT_SUCCESS(ncclCommAbort(sick[0]));
  destroy_all(well);
}

}  // namespace
}  // namespace sprat::nccl_tests
