// What wrong calls are told, and that each call leaves the communicator as it was.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "tests/system/nccl/ranks.hpp"

namespace sprat::nccl_tests {
namespace {

class NcclErrors : public testing::Test {
 protected:
  void SetUp() override { comm_ = init_all(1).front(); }
  void TearDown() override {
    float in = 3, out = 0;
    EXPECT_SUCCESS(ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, comm_, nullptr));
    EXPECT_EQ(out, 3);
    EXPECT_SUCCESS(ncclCommDestroy(comm_));
  }
  /// `result` is what the call gave; the last error has the word.
  static void expect(ncclResult_t result, ncclResult_t expected, const char* word) {
    EXPECT_EQ(result, expected) << word;
    EXPECT_NE(std::string(ncclGetLastError(nullptr)).find(word), std::string::npos)
        << "\"" << ncclGetLastError(nullptr) << "\" does not say \"" << word << "\"";
  }

  ncclComm_t comm_ = nullptr;
  float in_ = 0, out_ = 0;
};

TEST_F(NcclErrors, name_the_argument) {
  const auto type = static_cast<ncclDataType_t>(12);
  const auto op = static_cast<ncclRedOp_t>(77);
  expect(ncclAllReduce(&in_, &out_, 1, type, ncclSum, comm_, nullptr), ncclInvalidArgument,
         "datatype 12");
  expect(ncclAllReduce(&in_, &out_, 1, ncclFloat32, op, comm_, nullptr), ncclInvalidArgument,
         "op 77");
  expect(ncclAllReduce(nullptr, &out_, 1, ncclFloat32, ncclSum, comm_, nullptr),
         ncclInvalidArgument, "sendbuff is null");
  expect(ncclAllReduce(&in_, nullptr, 1, ncclFloat32, ncclSum, comm_, nullptr), ncclInvalidArgument,
         "recvbuff is null");
  expect(ncclAllReduce(&in_, &out_, SIZE_MAX / 2, ncclFloat32, ncclSum, comm_, nullptr),
         ncclInvalidArgument, "more than memory can hold");
  expect(ncclBroadcast(&in_, &out_, 1, ncclFloat32, 1, comm_, nullptr), ncclInvalidArgument,
         "root 1");
  expect(ncclReduce(&in_, &out_, 1, ncclFloat32, ncclSum, -1, comm_, nullptr), ncclInvalidArgument,
         "root -1");
  expect(ncclSend(&in_, 1, ncclFloat32, 9, comm_, nullptr), ncclInvalidArgument, "peer 9");
  expect(ncclAllReduce(&in_, &out_, 1, ncclFloat32, ncclSum, nullptr, nullptr), ncclInvalidArgument,
         "comm is null");
  expect(ncclCommCount(comm_, nullptr), ncclInvalidArgument, "count is null");
  expect(ncclRedOpDestroy(ncclAvg, comm_), ncclInvalidArgument, "NCCL's own");
}

TEST_F(NcclErrors, name_what_is_wrong_with_making) {
  ncclUniqueId id{}, strange{};
  ncclComm_t other = comm_;
  EXPECT_SUCCESS(ncclGetUniqueId(&id));
  expect(ncclCommInitRank(&other, 2, id, 2), ncclInvalidArgument, "rank 2 of 2");
  EXPECT_EQ(other, nullptr);
  expect(ncclCommInitRank(&other, 1, strange, 0), ncclInvalidArgument, "ncclGetUniqueId");
  expect(ncclCommSplit(comm_, -5, 0, &other, nullptr), ncclInvalidArgument, "color is -5");
  int excluded[] = {0};
  expect(ncclCommShrink(comm_, excluded, 1, &other, nullptr, NCCL_SHRINK_DEFAULT),
         ncclInvalidArgument, "must not call");
  // An id is for one communicator.
  ncclComm_t both[2] = {nullptr, nullptr};
  run_threads(2, [&](int rank) { EXPECT_SUCCESS(ncclCommInitRank(&both[rank], 2, id, rank)); });
  destroy_all({both[0], both[1]});
  expect(ncclCommInitRank(&other, 2, id, 1), ncclSystemError, "an id is for one communicator");
}

// Who does not know the id's key learns nothing and does no harm; who says nothing is in nobody's
// way.
TEST_F(NcclErrors, send_strangers_away) {
  ncclUniqueId id{};
  EXPECT_SUCCESS(ncclGetUniqueId(&id));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::uint16_t port = 0;
  std::memcpy(&port, id.internal + 32, sizeof(port));  // behind what it is, its key and its host
  address.sin_port = htons(port);
  const auto connected = [&] {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    return socket;
  };
  const int silent = connected(), stranger = connected();
  std::string nonsense(4'000, 'x');
  std::memcpy(nonsense.data(), "spn1", 4);
  EXPECT_GT(send(stranger, nonsense.data(), nonsense.size(), MSG_NOSIGNAL), 0);
  char answer = 0;
  EXPECT_LE(recv(stranger, &answer, 1, 0), 0) << "the connection ends without a word";
  run_threads(2, [&](int rank) {
    ncclComm_t both = nullptr;
    EXPECT_SUCCESS(ncclCommInitRank(&both, 2, id, rank));
    EXPECT_SUCCESS(ncclCommDestroy(both));
  });
  close(silent);
  close(stranger);
}

TEST_F(NcclErrors, know_dead_handles) {
  ncclComm_t other = init_all(1).front();
  EXPECT_SUCCESS(ncclCommDestroy(other));
  expect(ncclCommDestroy(other), ncclInvalidArgument, "has been destroyed");
  expect(ncclAllReduce(&in_, &out_, 1, ncclFloat32, ncclSum, other, nullptr), ncclInvalidArgument,
         "has been destroyed");
  EXPECT_SUCCESS(ncclCommDestroy(nullptr));
  EXPECT_SUCCESS(ncclCommAbort(nullptr));
}

// Programs that use a handle once too often hear of it, and nobody else's is hit.
TEST_F(NcclErrors, know_handles_apart_that_were_never_at_once) {
  const ncclComm_t gone = init_all(1).front();
  EXPECT_SUCCESS(ncclCommDestroy(gone));
  float memory = 0;
  void *old_range = nullptr, *range = nullptr;
  EXPECT_SUCCESS(ncclCommRegister(comm_, &memory, sizeof(memory), &old_range));
  EXPECT_SUCCESS(ncclCommDeregister(comm_, old_range));
  for (int times = 0; times < 100; ++times) {
    const ncclComm_t other = init_all(1).front();
    EXPECT_NE(other, gone);
    EXPECT_SUCCESS(ncclCommRegister(other, &memory, sizeof(memory), &range));
    EXPECT_NE(range, old_range);
    EXPECT_SUCCESS(ncclCommDestroy(other));  // and its registration
  }
  expect(ncclCommDestroy(gone), ncclInvalidArgument, "has been destroyed");
  expect(ncclCommDeregister(comm_, old_range), ncclInvalidArgument, "not registered");
  expect(ncclCommDeregister(comm_, range), ncclInvalidArgument, "not registered");
  // A window is no registration, and another communicator's is none of this one's.
  ncclWindow_t window = nullptr;
  const ncclComm_t other = init_all(1).front();
  EXPECT_SUCCESS(ncclCommWindowRegister(comm_, &memory, sizeof(memory), &window, 0));
  expect(ncclCommDeregister(comm_, window), ncclInvalidArgument, "not registered");
  expect(ncclCommWindowDeregister(other, window), ncclInvalidArgument, "not registered");
  EXPECT_SUCCESS(ncclCommWindowDeregister(comm_, window));
  EXPECT_SUCCESS(ncclCommDestroy(other));
}

TEST_F(NcclErrors, leave_no_communicator_of_a_list_with_a_device_that_is_none) {
  ncclComm_t comms[2] = {comm_, comm_};
  const int devices[2] = {0, -1};
  expect(ncclCommInitAll(comms, 2, devices), ncclInvalidArgument, "device -1");
  EXPECT_EQ(comms[0], nullptr);
  EXPECT_EQ(comms[1], nullptr);
}

TEST_F(NcclErrors, refuse_a_shrink_before_it_aborts) {
  const std::vector<ncclComm_t> comms = init_all(2);
  ncclConfig_t zeros{};
  ncclComm_t rest = comm_;
  int excluded[] = {1, 1};
  expect(ncclCommShrink(comms[0], excluded, 1, &rest, &zeros, NCCL_SHRINK_ABORT),
         ncclInvalidArgument, "NCCL_CONFIG_INITIALIZER");
  expect(ncclCommShrink(comms[0], excluded, 2, &rest, nullptr, NCCL_SHRINK_ABORT),
         ncclInvalidArgument, "excludeRanksList[1] is 1");
  expect(ncclCommShrink(comms[0], excluded, 0, &rest, nullptr, NCCL_SHRINK_ABORT),
         ncclInvalidArgument, "excludeRanksCount is 0");
  expect(ncclCommShrink(comms[0], nullptr, 1, &rest, nullptr, NCCL_SHRINK_ABORT),
         ncclInvalidArgument, "excludeRanksList is null");
  expect(ncclCommShrink(comms[0], excluded, 1, &rest, nullptr, 8), ncclInvalidArgument,
         "shrinkFlags is 8");
  EXPECT_EQ(rest, nullptr);
  run_threads(2, [&](int rank) {
    int one = 1;
    EXPECT_SUCCESS(ncclAllReduce(&one, &one, 1, ncclInt32, ncclSum,
                                 comms[static_cast<std::size_t>(rank)], nullptr));
    EXPECT_EQ(one, 2) << "the communicator goes on";
  });
  destroy_all(comms);
}

TEST_F(NcclErrors, refuse_what_is_finalized) {
  ncclComm_t other = init_all(1).front();
  EXPECT_SUCCESS(ncclCommFinalize(other));
  expect(ncclCommFinalize(other), ncclInvalidUsage, "finalized");
  expect(ncclAllReduce(&in_, &out_, 1, ncclFloat32, ncclSum, other, nullptr), ncclInvalidUsage,
         "finalized");
  EXPECT_SUCCESS(ncclCommDestroy(other));
}

TEST_F(NcclErrors, have_words_for_every_code) {
  for (int code = 0; code <= 7; ++code) {
    EXPECT_NE(std::string(ncclGetErrorString(static_cast<ncclResult_t>(code))),
              "unknown result code");
  }
  EXPECT_EQ(std::string(ncclGetErrorString(static_cast<ncclResult_t>(99))), "unknown result code");
}

TEST_F(NcclErrors, tell_both_ranks_of_calls_that_differ) {
  const std::vector<ncclComm_t> comms = init_all(2);
  run_threads(2, [&](int rank) {
    float in[2] = {1, 2}, out[2] = {0, 0};
    const auto count = static_cast<std::size_t>(rank + 1);
    EXPECT_EQ(ncclAllReduce(in, out, count, ncclFloat32, ncclSum,
                            comms[static_cast<std::size_t>(rank)], nullptr),
              ncclInvalidUsage)
        << ncclGetLastError(nullptr);
  });
  destroy_all(comms);
}

TEST_F(NcclErrors, accept_registration_and_give_memory) {
  void *memory = nullptr, *handle = nullptr;
  EXPECT_SUCCESS(ncclMemAlloc(&memory, 1 << 20));
  ASSERT_NE(memory, nullptr);
  EXPECT_SUCCESS(ncclCommRegister(comm_, memory, 1 << 20, &handle));
  EXPECT_SUCCESS(ncclCommDeregister(comm_, handle));
  expect(ncclCommDeregister(comm_, handle), ncclInvalidArgument, "not registered");
  ncclWindow_t window = nullptr;
  EXPECT_SUCCESS(ncclCommWindowRegister(comm_, memory, 1 << 20, &window, 0));
  EXPECT_NE(window, nullptr);
  EXPECT_SUCCESS(ncclCommWindowDeregister(comm_, window));
  EXPECT_EQ(ncclCommWindowDeregister(comm_, window), ncclInvalidArgument);
  EXPECT_SUCCESS(ncclMemFree(memory));
  expect(ncclMemFree(memory), ncclInvalidArgument, "has been freed");
}

}  // namespace
}  // namespace sprat::nccl_tests
