// The drop-in on memory of a device, in the order of its streams: on the stand-in for CUDA's driver
// and runtime. It says nothing of speed.
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>
#include <new>
#include <string>

#include "tests/system/fake_cuda/fake_cuda.h"
#include "tests/system/nccl/streams/collectives.hpp"
#include "tests/system/nccl/streams/device_memory.hpp"

namespace {
std::atomic<long> allocations{0};
thread_local bool counted = false;

void count(const void* caller) {
  Dl_info from{};
  if (counted &&
      (dladdr(caller, &from) == 0 || std::strstr(from.dli_fname, "fake_cuda") == nullptr)) {
    allocations.fetch_add(1);
  }
}
}  // namespace

// The library's allocations come here, too: nothing else defines them. Those of the stand-in, which
// keeps queues, are not counted. A sanitizer has its own of each, and compares who takes with who
// gives: so all that delete below takes back are here.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  count(__builtin_return_address(0));
  return std::malloc(bytes);
}
void* operator new(std::size_t bytes) {
  count(__builtin_return_address(0));
  if (void* const memory = std::malloc(bytes)) {
    return memory;
  }
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace sprat::nccl_tests {
namespace {

constexpr std::size_t shared_count = 1'000;

TEST(NcclStreams, have_right_values_whatever_the_streams_do) {
  constexpr int ranks = 3;
  const std::vector<ncclComm_t> comms = init_all(ranks);
  for (const unsigned seed : {0u, 1u, 2u}) {
    fake_cuda_seed(seed);
    run_threads(ranks, [&](int rank) {
      for (const ncclDataType_t type : {ncclFloat32, ncclInt8, ncclBfloat16, ncclFloat64}) {
        check_collectives(comms[static_cast<std::size_t>(rank)], rank, ranks, type_of(type));
      }
    });
  }
  fake_cuda_seed(0);
  destroy_all(comms);
}

TEST(NcclStreams, exchange_in_groups_on_several_streams) {
  constexpr int ranks = 2;
  const std::vector<ncclComm_t> comms = init_all(ranks);
  run_threads(ranks, [&](int rank) {
    constexpr std::size_t count = 50'000;
    const Type& type = type_of(ncclInt32);
    const ncclComm_t comm = comms[static_cast<std::size_t>(rank)];
    const Stream there, here;
    const OnDevice out(filled(type, count, rank + 10), there.handle());
    const OnDevice in(filled(type, count, 0), here.handle());
    EXPECT_SUCCESS(ncclGroupStart());
    EXPECT_SUCCESS(
        ncclSend(out.data(), count, ncclInt32, 1 - rank, comm, as_stream(there.handle())));
    EXPECT_SUCCESS(ncclRecv(in.data(), count, ncclInt32, 1 - rank, comm, as_stream(here.handle())));
    EXPECT_SUCCESS(ncclGroupEnd());
    EXPECT_EQ(in.read(), filled(type, count, 1 - rank + 10));
    EXPECT_SUCCESS(ncclCommFinalize(comm));
  });
  destroy_all(comms);
}

void add_up(const OnDevice& data, ncclComm_t comm, const Stream& stream) {
  EXPECT_SUCCESS(ncclAllReduce(data.data(), data.data(), shared_count, ncclInt32, ncclSum, comm,
                               as_stream(stream.handle())));
}

/// Ranks meet elsewhere meanwhile: what is wrongly ready has the time to go on.
void meet(ncclComm_t comm) {
  const Stream stream;
  const OnDevice data(filled(type_of(ncclInt32), shared_count, 1), stream.handle());
  add_up(data, comm, stream);
  EXPECT_EQ(cudaStreamSynchronize(stream.handle()), 0);
}

TEST(NcclStreams, a_group_comes_behind_what_any_of_its_streams_holds) {
  constexpr int ranks = 2;
  const std::vector<ncclComm_t> comms = init_all(ranks), others = init_all(ranks);
  const Type& type = type_of(ncclInt32);
  run_threads(ranks, [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    const Stream first, second;
    const OnDevice one(filled(type, shared_count, 0), first.handle());
    const OnDevice two(filled(type, shared_count, 2), second.handle());
    const OnDevice ones(filled(type, shared_count, 1), second.handle());
    EXPECT_EQ(cudaStreamSynchronize(first.handle()), 0);
    Gate gate;
    gate.hold(second.handle());
    EXPECT_EQ(cudaMemcpyAsync(one.data(), ones.data(), shared_count * type.bytes, any_direction,
                              second.handle()),
              0);
    EXPECT_SUCCESS(ncclGroupStart());
    add_up(one, comms[at], first);
    add_up(two, comms[at], second);
    EXPECT_SUCCESS(ncclGroupEnd());
    meet(others[at]);
    gate.open();
    EXPECT_EQ(one.read(), filled(type, shared_count, ranks));
    EXPECT_EQ(two.read(), filled(type, shared_count, 2 * ranks));
  });
  destroy_all(comms);
  destroy_all(others);
}

TEST(NcclStreams, every_stream_of_a_group_waits_for_all_of_it) {
  constexpr int ranks = 2;
  const std::vector<ncclComm_t> comms = init_all(ranks), others = init_all(ranks);
  const Type& type = type_of(ncclInt32);
  run_threads(ranks, [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    const Stream first, second, third;
    const Bytes none = filled(type, shared_count, 0);
    const OnDevice one(filled(type, shared_count, 1), first.handle()),
        two(filled(type, shared_count, 2), first.handle()), here(none, first.handle()),
        message(filled(type, shared_count, rank), first.handle()), there(none, third.handle());
    const auto copy_of_two = [&](const OnDevice& to, const Stream& stream) {
      EXPECT_EQ(cudaMemcpyAsync(to.data(), two.data(), none.size(), any_direction, stream.handle()),
                0);
    };
    EXPECT_EQ(cudaStreamSynchronize(first.handle()), 0);
    if (rank == 0) {
      EXPECT_SUCCESS(ncclGroupStart());
      EXPECT_SUCCESS(ncclRecv(message.data(), shared_count, ncclInt32, 1, comms[at],
                              as_stream(third.handle())));
      add_up(one, comms[at], first);
      add_up(two, comms[at], second);
      EXPECT_SUCCESS(ncclGroupEnd());
      copy_of_two(here, first);
      copy_of_two(there, third);
      meet(others[at]);
      EXPECT_EQ(message.read(), filled(type, shared_count, 1)) << "in the first collective's";
      EXPECT_EQ(here.read(), filled(type, shared_count, 2 * ranks)) << "in the first collective's";
      EXPECT_EQ(there.read(), filled(type, shared_count, 2 * ranks)) << "in the message's";
    } else {
      add_up(one, comms[at], first);
      meet(others[at]);
      add_up(two, comms[at], second);
      EXPECT_SUCCESS(ncclSend(message.data(), shared_count, ncclInt32, 0, comms[at],
                              as_stream(third.handle())));
    }
    for (const Stream* stream : {&first, &second, &third}) {
      EXPECT_EQ(cudaStreamSynchronize(stream->handle()), 0);
    }
  });
  destroy_all(comms);
  destroy_all(others);
}

// One thread calls for both ranks, without a group, while both streams stand still: any call that
// waited would wait for ever.
TEST(NcclStreams, calls_return_while_streams_stand_still_and_allocate_nothing) {
  constexpr int ranks = 2, rounds = 20;
  constexpr std::size_t count = 1'000;
  const std::vector<ncclComm_t> comms = init_all(ranks);
  const Type& type = type_of(ncclFloat32);
  const Stream streams[ranks];
  const OnDevice first(filled(type, count, 1), streams[0].handle());
  const OnDevice second(filled(type, count, 1), streams[1].handle());
  void* const memory[ranks] = {first.data(), second.data()};
  // The lane's thread gives an operation back shortly after its outputs are there, sometimes after
  // the next repetition has begun: calls that allocated would do so in each.
  long fewest = std::numeric_limits<long>::max();
  std::chrono::nanoseconds spent{};
  for (int repetition = 0; repetition < 5; ++repetition) {
    Gate gate;
    for (const Stream& stream : streams) {
      EXPECT_EQ(cudaStreamSynchronize(stream.handle()), 0);
      gate.hold(stream.handle());
    }
    const int waits = fake_cuda_waits();
    allocations.store(0);
    const auto begin = std::chrono::steady_clock::now();
    counted = true;
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        EXPECT_SUCCESS(ncclAllReduce(memory[rank], memory[rank], count, ncclFloat32, ncclMax,
                                     comms[rank], as_stream(streams[rank].handle())));
      }
    }
    counted = false;
    spent = std::chrono::steady_clock::now() - begin;
    fewest = std::min(fewest, allocations.load());
    EXPECT_EQ(fake_cuda_waits(), waits) << "no call has waited for a stream";
    gate.open();
    EXPECT_EQ(first.read(), filled(type, count, 1));
    EXPECT_EQ(second.read(), filled(type, count, 1));
  }
  EXPECT_EQ(fewest, 0) << "of " << rounds * ranks << " calls, as many as were under way before";
  std::cout << "enqueueing an ncclAllReduce took " << spent.count() / (rounds * ranks)
            << " ns on the stand-in\n";
  destroy_all(comms);
}

TEST(NcclStreams, an_abort_releases_the_streams_that_wait) {
  const std::vector<ncclComm_t> comms = init_all(2);
  const Type& type = type_of(ncclFloat32);
  const Stream stream;
  const OnDevice memory(filled(type, 100, 1), stream.handle());
  // Rank 1 never calls.
  EXPECT_SUCCESS(ncclAllReduce(memory.data(), memory.data(), 100, ncclFloat32, ncclSum, comms[0],
                               as_stream(stream.handle())));
  EXPECT_SUCCESS(ncclCommAbort(comms[1]));
  EXPECT_EQ(cudaStreamSynchronize(stream.handle()), 0);
  ncclResult_t state = ncclSuccess;
  EXPECT_SUCCESS(ncclCommGetAsyncError(comms[0], &state));
  EXPECT_EQ(state, ncclRemoteError);
  EXPECT_SUCCESS(ncclCommAbort(comms[0]));
}

TEST(NcclStreams, refuse_to_be_captured) {
  const std::vector<ncclComm_t> comms = init_all(1);
  const Stream stream;
  const OnDevice memory(filled(type_of(ncclFloat32), 10, 1), stream.handle());
  EXPECT_EQ(cudaStreamSynchronize(stream.handle()), 0);
  EXPECT_EQ(cudaStreamBeginCapture(stream.handle(), 0), 0);
  EXPECT_EQ(ncclAllReduce(memory.data(), memory.data(), 10, ncclFloat32, ncclSum, comms[0],
                          as_stream(stream.handle())),
            ncclInvalidArgument);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("captured"), std::string::npos);
  // Nor is another stream of the group drawn into the capture.
  const Stream other;
  EXPECT_SUCCESS(ncclGroupStart());
  for (const Stream* each : {&other, &stream}) {
    EXPECT_SUCCESS(ncclAllReduce(memory.data(), memory.data(), 10, ncclFloat32, ncclSum, comms[0],
                                 as_stream(each->handle())));
  }
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(cudaStreamSynchronize(other.handle()), 0);
  void* graph = nullptr;
  cudaStreamEndCapture(stream.handle(), &graph);
  destroy_all(comms);
}

TEST(NcclStreams, give_memory_of_the_device) {
  void* memory = nullptr;
  const int pieces = fake_cuda_pieces();
  EXPECT_SUCCESS(ncclMemAlloc(&memory, 4096));
  EXPECT_EQ(fake_cuda_pieces(), pieces + 1);
  EXPECT_SUCCESS(ncclMemFree(memory));
  EXPECT_EQ(fake_cuda_pieces(), pieces);
}

}  // namespace
}  // namespace sprat::nccl_tests
