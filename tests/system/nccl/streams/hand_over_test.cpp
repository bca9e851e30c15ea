// Operations that the drop-in hands over to NCCL's own library, which is a stand-in here: which go
// over, with which values, and that whatever ends one of the two communicators ends the other one.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "tests/system/fake_cuda/fake_cuda.h"
#include "tests/system/nccl/stand_in/stand_in.h"
#include "tests/system/nccl/streams/collectives.hpp"
#include "tests/system/nccl/streams/device_memory.hpp"

extern "C" int cudaSetDevice(int device);

namespace {

/// In a child of fork(), which knows what its parent's threads hold from nowhere.
bool is_child = false;

}  // namespace

extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off();
int __lsan_is_turned_off() { return is_child ? 1 : 0; }

namespace sprat::nccl_tests {
namespace {

constexpr int ranks = 2;
constexpr std::size_t count = 1'000;

/// A library of NCCL's own is named, and operations, while this lives.
class Asked {
 public:
  explicit Asked(const char* operations, const char* library = SPRAT_REAL_NCCL_STAND_IN) {
    setenv("SPRAT_NCCL_LIB", library, 1);
    setenv("SPRAT_NCCL_HAND_OVER", operations, 1);
  }
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;
  ~Asked() {
    unsetenv("SPRAT_NCCL_LIB");
    unsetenv("SPRAT_NCCL_HAND_OVER");
  }
};

/// What the stand-in has by this name, once the drop-in has loaded it.
template <class Function>
Function* in_stand_in(const char* name) {
  void* const library = dlopen(SPRAT_REAL_NCCL_STAND_IN, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  return library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
}
// Its address is never taken, which would have to be linked.
#define STAND_IN(name) in_stand_in<decltype(name)>(#name)

/// Nobody has loaded it: nobody has called it.
int calls(const char* name) {
  auto* const ask = STAND_IN(real_nccl_calls);
  return ask == nullptr ? 0 : ask(name);
}

/// Threads, each with the device of its rank.
void run_on_devices(const std::function<void(int)>& body) {
  run_threads(ranks, [&](int rank) {
    EXPECT_EQ(cudaSetDevice(rank), 0);
    body(rank);
  });
}

std::vector<ncclComm_t> init_on_devices() {
  std::vector<ncclComm_t> comms(ranks, nullptr);
  EXPECT_SUCCESS(ncclCommInitAll(comms.data(), ranks, nullptr));
  return comms;
}

bool comes_true(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return condition();
}

void expect_nothing_left() {
  EXPECT_TRUE(comes_true([] { return STAND_IN(real_nccl_communicators)() == 0; }))
      << STAND_IN(real_nccl_communicators)() << " communicators of the other library are left";
}

ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclInternalError;
  EXPECT_SUCCESS(ncclCommGetAsyncError(comm, &state));
  return state;
}

/// One all_reduce of ones, on a stream of the calling thread's device.
void check_all_reduce(ncclComm_t comm) {
  const Type& type = type_of(ncclFloat32);
  const Stream stream;
  const OnDevice memory(filled(type, count, 1), stream.handle());
  EXPECT_SUCCESS(ncclAllReduce(memory.data(), memory.data(), count, ncclFloat32, ncclSum, comm,
                               as_stream(stream.handle())));
  EXPECT_EQ(memory.read(), filled(type, count, ranks));
}

TEST(NcclHandOver, all_collectives_go_over_where_ranks_have_devices_of_their_own) {
  const Asked asked("");
  const std::vector<ncclComm_t> comms = init_on_devices();
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(STAND_IN(real_nccl_device_of)(rank), rank);
  }
  const std::vector types = {ncclFloat32, ncclInt8, ncclFloat64};
  int rounds = 0;
  for (const unsigned seed : {0u, 1u, 2u}) {
    fake_cuda_seed(seed);
    run_on_devices([&](int rank) {
      for (const ncclDataType_t type : types) {
        check_collectives(comms[static_cast<std::size_t>(rank)], rank, ranks, type_of(type));
      }
    });
    rounds += ranks * static_cast<int>(types.size());
  }
  fake_cuda_seed(0);
  EXPECT_EQ(calls("AllReduce"), 3 * rounds);
  EXPECT_EQ(calls("ReduceScatter"), 3 * rounds);
  for (const char* once : {"Broadcast", "AllGather", "AlltoAll", "Scatter", "Reduce", "Gather",
                           "RedOpCreatePreMulSum", "RedOpDestroy"}) {
    EXPECT_EQ(calls(once), rounds) << once;
  }
  destroy_all(comms);
  EXPECT_EQ(calls("CommDestroy"), ranks) << "finalized, and not aborted";
  expect_nothing_left();
}

// In the order of one stream, and in one group: what goes over, what does not, and messages.
TEST(NcclHandOver, what_goes_over_and_what_stays_keep_the_order_of_the_stream) {
  const Asked asked("all_reduce,send_recv");
  const std::vector<ncclComm_t> comms = init_on_devices();
  const int reduced = calls("AllReduce"), gathered = calls("AllGather"), sent = calls("Send");
  const Type& type = type_of(ncclInt32);
  for (const unsigned seed : {1u, 2u, 3u}) {
    fake_cuda_seed(seed);
    run_on_devices([&](int rank) {
      const ncclComm_t comm = comms[static_cast<std::size_t>(rank)];
      const Stream stream;
      const cudaStream_t queue = as_stream(stream.handle());
      const OnDevice sum(filled(type, count, 1), queue), whole(filled(type, 2 * count, 0), queue);
      const OnDevice got(filled(type, count, 0), queue), shared(filled(type, count, rank), queue);
      // 2 everywhere, gathered, 4, gathered again.
      for (int round = 0; round < 2; ++round) {
        EXPECT_SUCCESS(
            ncclAllReduce(sum.data(), sum.data(), count, ncclInt32, ncclSum, comm, queue));
        EXPECT_SUCCESS(ncclAllGather(sum.data(), whole.data(), count, ncclInt32, comm, queue));
      }
      EXPECT_SUCCESS(ncclGroupStart());
      EXPECT_SUCCESS(ncclSend(sum.data(), count, ncclInt32, 1 - rank, comm, queue));
      EXPECT_SUCCESS(ncclBroadcast(shared.data(), shared.data(), count, ncclInt32, 1, comm, queue));
      EXPECT_SUCCESS(ncclRecv(got.data(), count, ncclInt32, 1 - rank, comm, queue));
      EXPECT_SUCCESS(ncclGroupEnd());
      EXPECT_EQ(whole.read(), filled(type, 2 * count, 4));
      EXPECT_EQ(got.read(), filled(type, count, 4));
      EXPECT_EQ(shared.read(), filled(type, count, 1));
    });
  }
  fake_cuda_seed(0);
  EXPECT_EQ(calls("AllReduce") - reduced, 3 * 2 * ranks);
  EXPECT_EQ(calls("Send") - sent, 3 * ranks);
  EXPECT_EQ(calls("AllGather"), gathered);
  destroy_all(comms);
}

// What the other library has in one stream is behind what ours has in the other, and both are read
// in each other's.
TEST(NcclHandOver, a_group_joins_its_streams_where_a_part_of_it_goes_over) {
  const Asked asked("all_reduce");
  const std::vector<ncclComm_t> comms = init_on_devices();
  const Type& type = type_of(ncclInt32);
  run_on_devices([&](int rank) {
    const ncclComm_t comm = comms[static_cast<std::size_t>(rank)];
    const Stream theirs, ours;
    const OnDevice sum(filled(type, count, 0), ours.handle()),
        part(filled(type, count, 0), theirs.handle()),
        whole(filled(type, ranks * count, 0), theirs.handle()),
        ones(filled(type, count, 1), theirs.handle());
    for (const Stream* stream : {&theirs, &ours}) {
      EXPECT_EQ(cudaStreamSynchronize(stream->handle()), 0);
    }
    const auto fill_behind = [&](Gate& gate, const OnDevice& memory, const Stream& stream) {
      gate.hold(stream.handle());
      EXPECT_EQ(cudaMemcpyAsync(memory.data(), ones.data(), count * type.bytes, any_direction,
                                stream.handle()),
                0);
    };
    Gate first, second;
    fill_behind(first, sum, ours);
    fill_behind(second, part, theirs);
    EXPECT_SUCCESS(ncclGroupStart());
    EXPECT_SUCCESS(ncclAllReduce(sum.data(), sum.data(), count, ncclInt32, ncclSum, comm,
                                 as_stream(theirs.handle())));
    EXPECT_SUCCESS(
        ncclAllGather(part.data(), whole.data(), count, ncclInt32, comm, as_stream(ours.handle())));
    EXPECT_SUCCESS(ncclGroupEnd());
    second.open();
    first.open();
    EXPECT_EQ(sum.read(), filled(type, count, ranks)) << "in our operation's stream";
    EXPECT_EQ(whole.read(), filled(type, ranks * count, 1)) << "in the other library's";
  });
  destroy_all(comms);
}

// A communicator's call that is refused on all ranks must not leave the other library's undone.
TEST(NcclHandOver, one_that_is_refused_fails_alone_in_its_group) {
  const Asked asked("all_reduce");
  const std::vector<ncclComm_t> comms = init_on_devices(), others = init_on_devices();
  const int reduced = calls("AllReduce");
  const Type& type = type_of(ncclInt32);
  run_on_devices([&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    const Stream stream, captured;
    const OnDevice sum(filled(type, count, 1), stream.handle());
    const OnDevice whole(filled(type, ranks * count, 0), captured.handle());
    EXPECT_EQ(cudaStreamSynchronize(captured.handle()), 0);
    EXPECT_EQ(cudaStreamBeginCapture(captured.handle(), 0), 0);
    EXPECT_SUCCESS(ncclGroupStart());
    EXPECT_SUCCESS(ncclAllGather(sum.data(), whole.data(), count, ncclInt32, others[at],
                                 as_stream(captured.handle())));
    EXPECT_SUCCESS(ncclAllReduce(sum.data(), sum.data(), count, ncclInt32, ncclSum, comms[at],
                                 as_stream(stream.handle())));
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("captured"), std::string::npos);
    EXPECT_EQ(sum.read(), filled(type, count, ranks));
    void* graph = nullptr;
    cudaStreamEndCapture(captured.handle(), &graph);
  });
  EXPECT_EQ(calls("AllReduce") - reduced, ranks);
  destroy_all(comms);
  destroy_all(others);
}

TEST(NcclHandOver, one_thread_may_call_for_all_ranks_in_a_group) {
  const Asked asked("all");
  const std::vector<ncclComm_t> comms = init_on_devices();
  const Type& type = type_of(ncclFloat32);
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<OnDevice>> memory;
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(cudaSetDevice(rank), 0);
    streams.push_back(std::make_unique<Stream>());
    memory.push_back(std::make_unique<OnDevice>(filled(type, count, 3), streams.back()->handle()));
  }
  EXPECT_SUCCESS(ncclGroupStart());
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    EXPECT_SUCCESS(ncclAllReduce(memory[rank]->data(), memory[rank]->data(), count, ncclFloat32,
                                 ncclProd, comms[rank], as_stream(streams[rank]->handle())));
  }
  EXPECT_SUCCESS(ncclGroupEnd());
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(cudaSetDevice(rank), 0);
    EXPECT_EQ(memory[static_cast<std::size_t>(rank)]->read(), filled(type, count, 9));
    memory[static_cast<std::size_t>(rank)].reset();
  }
  EXPECT_EQ(cudaSetDevice(0), 0);
  destroy_all(comms);
}

TEST(NcclHandOver, memory_of_the_host_stays_ours) {
  const Asked asked("all");
  const std::vector<ncclComm_t> comms = init_on_devices();
  const int before = calls("AllReduce");
  run_on_devices([&](int rank) {
    const Stream stream;
    std::vector<float> data(count, 1);
    EXPECT_SUCCESS(ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum,
                                 comms[static_cast<std::size_t>(rank)],
                                 as_stream(stream.handle())));
    EXPECT_EQ(cudaStreamSynchronize(stream.handle()), 0);
    EXPECT_EQ(data, std::vector<float>(count, ranks));
  });
  EXPECT_EQ(calls("AllReduce"), before);
  destroy_all(comms);
}

TEST(NcclHandOver, parts_of_a_communicator_have_one_of_their_own) {
  const Asked asked("all");
  const std::vector<ncclComm_t> comms = init_on_devices();
  const int made = calls("CommInitRankConfig"), before = calls("AllReduce");
  run_on_devices([&](int rank) {
    ncclComm_t part = nullptr;
    const ncclComm_t comm = comms[static_cast<std::size_t>(rank)];
    EXPECT_SUCCESS(ncclCommSplit(comm, 0, rank, &part, nullptr));
    check_all_reduce(part);
    EXPECT_SUCCESS(ncclCommFinalize(part));
    EXPECT_SUCCESS(ncclCommDestroy(part));
    check_all_reduce(comm);
  });
  EXPECT_EQ(calls("CommInitRankConfig") - made, ranks);
  EXPECT_EQ(calls("AllReduce") - before, 2 * ranks);
  destroy_all(comms);
  expect_nothing_left();
}

// Rank 1 never calls: rank 0's stream stands in the other library's operation, and only its own
// abort there releases it.
TEST(NcclHandOver, an_abort_releases_the_streams_of_all_ranks) {
  const Asked asked("all");
  const std::vector<ncclComm_t> comms = init_on_devices();
  const int before = calls("AllReduce");
  EXPECT_EQ(cudaSetDevice(0), 0);
  const Type& type = type_of(ncclFloat32);
  const Stream stream;
  const OnDevice memory(filled(type, count, 1), stream.handle());
  const auto call = [&] {
    return ncclAllReduce(memory.data(), memory.data(), count, ncclFloat32, ncclSum, comms[0],
                         as_stream(stream.handle()));
  };
  EXPECT_EQ(call(), ncclSuccess);
  EXPECT_EQ(calls("AllReduce") - before, 1);
  EXPECT_SUCCESS(ncclCommAbort(comms[1]));
  EXPECT_EQ(cudaStreamSynchronize(stream.handle()), 0);
  EXPECT_EQ(state_of(comms[0]), ncclRemoteError);
  EXPECT_EQ(call(), ncclRemoteError);
  EXPECT_SUCCESS(ncclCommAbort(comms[0]));
  expect_nothing_left();
}

TEST(NcclHandOver, a_failure_of_the_other_library_is_told_to_all_ranks) {
  const Asked asked("all");
  const std::vector<ncclComm_t> comms = init_on_devices();
  EXPECT_EQ(cudaSetDevice(0), 0);
  const Type& type = type_of(ncclFloat32);
  const Stream stream;
  const OnDevice memory(filled(type, count, 1), stream.handle());
  EXPECT_SUCCESS(ncclAllReduce(memory.data(), memory.data(), count, ncclFloat32, ncclSum, comms[0],
                               as_stream(stream.handle())));
  STAND_IN(real_nccl_fail_rank)(1, ncclUnhandledCudaError);
  EXPECT_EQ(cudaStreamSynchronize(stream.handle()), 0) << "rank 0 is released";
  EXPECT_EQ(state_of(comms[0]), ncclRemoteError);
  EXPECT_EQ(state_of(comms[1]), ncclUnhandledCudaError);
  EXPECT_NE(std::string(ncclGetLastError(comms[1])).find("NCCL's own library"), std::string::npos)
      << ncclGetLastError(comms[1]);
  for (const ncclComm_t comm : comms) {
    EXPECT_SUCCESS(ncclCommAbort(comm));
  }
  expect_nothing_left();
}

// A worker of a data loader, say, that is forked while the threads that watch ask the other
// library.
TEST(NcclHandOver, a_child_of_fork_ends_and_leaves_its_parents_alone) {
  const Asked asked("all");
  const std::vector<ncclComm_t> comms = init_on_devices();
  STAND_IN(real_nccl_hold_answers)(1);
  ASSERT_TRUE(comes_true([] { return STAND_IN(real_nccl_answers_held)() == ranks; }));
  const int ended = calls("CommDestroy") + calls("CommAbort");
  fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(most_seconds);
    is_child = true;
    std::exit(ncclCommDestroy(comms[0]) == ncclInvalidUsage ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "14: it hangs";
  STAND_IN(real_nccl_hold_answers)(0);
  run_on_devices([&](int rank) { check_all_reduce(comms[static_cast<std::size_t>(rank)]); });
  EXPECT_EQ(calls("CommDestroy") + calls("CommAbort"), ended);
  destroy_all(comms);
  expect_nothing_left();
}

TEST(NcclHandOver, factors_are_made_in_both_and_end_once) {
  const Asked asked("all");
  const std::vector<ncclComm_t> comms = init_on_devices();
  const int made = calls("RedOpCreatePreMulSum"), ended = calls("RedOpDestroy");
  run_on_devices([&](int rank) {
    const ncclComm_t comm = comms[static_cast<std::size_t>(rank)];
    float factor = 2;
    ncclRedOp_t op = ncclSum;
    EXPECT_SUCCESS(
        ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarHostImmediate, comm));
    EXPECT_SUCCESS(ncclRedOpDestroy(op, comm));
    EXPECT_EQ(ncclRedOpDestroy(op, comm), ncclInvalidArgument);
    check_all_reduce(comm);
  });
  EXPECT_EQ(calls("RedOpCreatePreMulSum") - made, ranks);
  EXPECT_EQ(calls("RedOpDestroy") - ended, ranks);
  destroy_all(comms);
}

// A program may do so as soon as its last call with the op has returned, which in a group starts
// nothing yet.
TEST(NcclHandOver, a_factor_may_be_destroyed_in_the_group_that_has_it) {
  const Asked asked("all");
  const std::vector<ncclComm_t> comms = init_on_devices();
  const int made = calls("RedOpCreatePreMulSum"), ended = calls("RedOpDestroy");
  run_on_devices([&](int rank) {
    const ncclComm_t comm = comms[static_cast<std::size_t>(rank)];
    const Type& type = type_of(ncclFloat32);
    const Stream stream;
    const OnDevice memory(filled(type, count, 1), stream.handle());
    float factor = 3;
    ncclRedOp_t op = ncclSum;
    EXPECT_SUCCESS(ncclGroupStart());
    EXPECT_SUCCESS(
        ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarHostImmediate, comm));
    EXPECT_SUCCESS(ncclAllReduce(memory.data(), memory.data(), count, ncclFloat32, op, comm,
                                 as_stream(stream.handle())));
    EXPECT_SUCCESS(ncclRedOpDestroy(op, comm));
    EXPECT_EQ(ncclRedOpDestroy(op, comm), ncclInvalidArgument);
    EXPECT_SUCCESS(ncclGroupEnd());
    EXPECT_EQ(memory.read(), filled(type, count, 3 * ranks));
  });
  EXPECT_EQ(calls("RedOpCreatePreMulSum") - made, ranks);
  EXPECT_EQ(calls("RedOpDestroy") - ended, ranks);
  destroy_all(comms);
}

/// What is said while two communicators are made, work and are destroyed.
std::string said_of_two(const std::vector<int>& devices) {
  testing::internal::CaptureStderr();
  for (int time = 0; time < 2; ++time) {
    std::vector<ncclComm_t> comms(ranks, nullptr);
    EXPECT_SUCCESS(ncclCommInitAll(comms.data(), ranks, devices.data()));
    run_threads(ranks, [&](int rank) {
      EXPECT_EQ(cudaSetDevice(devices[static_cast<std::size_t>(rank)]), 0);
      check_all_reduce(comms[static_cast<std::size_t>(rank)]);
    });
    destroy_all(comms);
  }
  return testing::internal::GetCapturedStderr();
}

int times(const std::string& sentence, const std::string& text) {
  int found = 0;
  for (std::size_t at = text.find(sentence); at != std::string::npos;
       at = text.find(sentence, at + 1)) {
    ++found;
  }
  return found;
}

TEST(NcclHandOver, all_stays_ours_and_it_is_said_once) {
  {
    const Asked asked("");
    const int before = calls("AllReduce");
    const std::string said = said_of_two({0, 0});
    EXPECT_EQ(times("ranks 0 and 1 are on one device, 0000:01:00.0", said), 1) << said;
    STAND_IN(real_nccl_refuse_rank)(1);
    const std::string refused = said_of_two({0, 1});
    STAND_IN(real_nccl_refuse_rank)(-1);
    EXPECT_EQ(times("rank 1: NCCL's own library: ncclCommInitRankConfig", refused), 1) << refused;
    EXPECT_EQ(calls("AllReduce"), before);
    expect_nothing_left();
  }
  {
    const Asked asked("all", "/none/libnccl.so.2");
    const std::string said = said_of_two({0, 1});
    EXPECT_EQ(times("SPRAT_NCCL_LIB on rank 0: it cannot be loaded", said), 1) << said;
    EXPECT_EQ(times("rank 0 has no library", said), 1) << said;
  }
  {
    const Asked asked("all", SPRAT_FAKE_CUDA);
    const std::string said = said_of_two({0, 1});
    EXPECT_EQ(times("has no pncclGetVersion: it is older than NCCL 2.28, or not NCCL", said), 2)
        << "each rank says its own: " << said;
  }
  {
    const Asked asked("all", SPRAT_NCCL_LIBRARY);
    EXPECT_NE(said_of_two({0, 1}).find("is this library itself"), std::string::npos);
  }
}

TEST(NcclHandOver, a_word_that_is_none_is_refused) {
  const Asked asked("all_reduce,all_redcue");
  std::vector<ncclComm_t> comms(ranks, nullptr);
  EXPECT_EQ(ncclCommInitAll(comms.data(), ranks, nullptr), ncclInvalidArgument);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("all_redcue"), std::string::npos)
      << ncclGetLastError(nullptr);
}

}  // namespace
}  // namespace sprat::nccl_tests
