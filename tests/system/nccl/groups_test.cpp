// Groups: what would wait for ever one by one, several communicators from one thread, and what a
// group does that has failed.
#include <string>

#include "tests/system/nccl/ranks.hpp"

namespace sprat::nccl_tests {
namespace {

TEST(NcclGroups, exchange_what_would_wait_for_ever_alone) {
  static constexpr int ranks = 4;
  run_processes(ranks, [](int rank, ncclUniqueId id) {
    ncclComm_t comm = nullptr;
    EXPECT_SUCCESS(ncclCommInitRank(&comm, ranks, id, rank));
    // Long enough that no send ends before its receive. Everyone sends first, to everyone, itself
    // too.
    constexpr std::size_t length = 100'000;
    std::vector<std::vector<int>> out(ranks), in(ranks, std::vector<int>(length));
    EXPECT_SUCCESS(ncclGroupStart());
    for (int peer = 0; peer < ranks; ++peer) {
      out[static_cast<std::size_t>(peer)].assign(length, rank * ranks + peer);
      EXPECT_SUCCESS(ncclSend(out[static_cast<std::size_t>(peer)].data(), length, ncclInt32, peer,
                              comm, nullptr));
    }
    EXPECT_SUCCESS(ncclGroupStart());  // groups in groups end with the outermost
    for (int peer = 0; peer < ranks; ++peer) {
      EXPECT_SUCCESS(ncclRecv(in[static_cast<std::size_t>(peer)].data(), length, ncclInt32, peer,
                              comm, nullptr));
    }
    EXPECT_SUCCESS(ncclGroupEnd());
    EXPECT_SUCCESS(ncclGroupEnd());
    for (int peer = 0; peer < ranks; ++peer) {
      EXPECT_EQ(in[static_cast<std::size_t>(peer)], std::vector<int>(length, peer * ranks + rank));
    }
    EXPECT_SUCCESS(ncclCommDestroy(comm));
  });
}

TEST(NcclGroups, let_one_thread_call_for_all_ranks) {
  static constexpr int ranks = 4;
  const std::vector<ncclComm_t> comms = init_all(ranks);
  std::vector<std::vector<float>> data;
  for (int rank = 0; rank < ranks; ++rank) {
    data.emplace_back(20'000, static_cast<float>(rank));
  }
  for (int round = 0; round < 3; ++round) {
    EXPECT_SUCCESS(ncclGroupStart());
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      // Several operations of each: they run in their order.
      EXPECT_SUCCESS(ncclAllReduce(data[rank].data(), data[rank].data(), data[rank].size(),
                                   ncclFloat32, ncclSum, comms[rank], nullptr));
      EXPECT_SUCCESS(ncclBroadcast(data[rank].data(), data[rank].data(), data[rank].size(),
                                   ncclFloat32, round % ranks, comms[rank], nullptr));
    }
    EXPECT_SUCCESS(ncclGroupEnd());
  }
  for (const auto& one : data) {
    EXPECT_EQ(one, std::vector<float>(one.size(), 6 * 4 * 4));
  }
  // Communicators made in a group by one thread, one part of each.
  std::vector<ncclComm_t> parts(ranks, nullptr);
  EXPECT_SUCCESS(ncclGroupStart());
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    EXPECT_SUCCESS(
        ncclCommSplit(comms[rank], static_cast<int>(rank) % 2, 0, &parts[rank], nullptr));
  }
  EXPECT_SUCCESS(ncclGroupEnd());
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    int size = 0, found = -1;
    EXPECT_SUCCESS(ncclCommCount(parts[rank], &size));
    EXPECT_SUCCESS(ncclCommUserRank(parts[rank], &found));
    EXPECT_EQ(size, 2);
    EXPECT_EQ(found, static_cast<int>(rank) / 2);
  }
  destroy_all(parts);
  destroy_all(comms);
}

TEST(NcclGroups, make_ranks_of_one_thread) {
  static constexpr int ranks = 3;
  ncclUniqueId id{};
  EXPECT_SUCCESS(ncclGetUniqueId(&id));
  std::vector<ncclComm_t> comms(ranks, nullptr);
  EXPECT_SUCCESS(ncclGroupStart());
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_SUCCESS(ncclCommInitRank(&comms[static_cast<std::size_t>(rank)], ranks, id, rank));
  }
  EXPECT_SUCCESS(ncclGroupEnd());
  for (int rank = 0; rank < ranks; ++rank) {
    int found = -1;
    EXPECT_SUCCESS(ncclCommUserRank(comms[static_cast<std::size_t>(rank)], &found));
    EXPECT_EQ(found, rank);
  }
  destroy_all(comms);
}

TEST(NcclGroups, that_fail_do_nothing) {
  const std::vector<ncclComm_t> comms = init_all(1);
  float in = 1, out = 0;
  EXPECT_SUCCESS(ncclGroupStart());
  EXPECT_SUCCESS(ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, comms[0], nullptr));
  EXPECT_EQ(ncclBroadcast(&in, &out, 1, ncclFloat32, 7, comms[0], nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(out, 0);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage) << "no group is open";
  // The next one is as good as new.
  EXPECT_SUCCESS(ncclGroupStart());
  EXPECT_SUCCESS(ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, comms[0], nullptr));
  EXPECT_SUCCESS(ncclGroupEnd());
  EXPECT_EQ(out, 1);
  // A simulated end does nothing either.
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  EXPECT_SUCCESS(ncclGroupStart());
  out = 0;
  EXPECT_SUCCESS(ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, comms[0], nullptr));
  EXPECT_SUCCESS(ncclGroupSimulateEnd(&info));
  EXPECT_EQ(out, 0);
  destroy_all(comms);
}

TEST(NcclGroups, that_fail_forget_everything_whatever_has_gone_meanwhile) {
  const std::vector<ncclComm_t> comms = init_all(1);
  ncclUniqueId id{};
  ncclComm_t made = nullptr, again = nullptr;
  EXPECT_SUCCESS(ncclGetUniqueId(&id));
  float in = 1, out = 0;
  EXPECT_SUCCESS(ncclGroupStart());
  EXPECT_SUCCESS(ncclCommInitRank(&made, 1, id, 0));
  EXPECT_SUCCESS(ncclCommInitRank(&again, 1, id, 0));
  EXPECT_SUCCESS(ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, comms[0], nullptr));
  EXPECT_EQ(ncclBroadcast(&in, &out, 1, ncclFloat32, 7, comms[0], nullptr), ncclInvalidArgument);
  EXPECT_SUCCESS(ncclCommAbort(made));
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(made, nullptr);
  EXPECT_EQ(again, nullptr);
  EXPECT_SUCCESS(ncclGroupStart());
  EXPECT_SUCCESS(ncclGroupEnd());
  EXPECT_EQ(out, 0) << "the next group has nothing of it";
  destroy_all(comms);
}

// Who waited for it would wait for itself.
TEST(NcclGroups, make_their_communicators_at_their_end) {
  ncclUniqueId id{};
  ncclComm_t comm = nullptr;
  EXPECT_SUCCESS(ncclGetUniqueId(&id));
  EXPECT_SUCCESS(ncclGroupStart());
  EXPECT_SUCCESS(ncclCommInitRank(&comm, 1, id, 0));
  ncclResult_t state = ncclSuccess;
  EXPECT_SUCCESS(ncclCommGetAsyncError(comm, &state));
  EXPECT_EQ(state, ncclInProgress);
  EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidUsage);
  EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidUsage);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("ncclGroupEnd"), std::string::npos)
      << ncclGetLastError(nullptr);
  EXPECT_SUCCESS(ncclGroupEnd());
  int size = 0;
  EXPECT_SUCCESS(ncclCommCount(comm, &size));
  EXPECT_EQ(size, 1);
  EXPECT_SUCCESS(ncclCommDestroy(comm));
}

// Each thread has a rank of two communicators, and half of them come to these in the other order.
TEST(NcclGroups, of_threads_may_have_communicators_and_messages_in_any_order) {
  static constexpr int ranks = 4;
  const std::vector<ncclComm_t> firsts = init_all(ranks), seconds = init_all(ranks);
  run_threads(ranks, [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    std::vector<int> one(50'000, 1), two(50'000, 2), out(50'000, rank), in(50'000, -1);
    const auto sum = [&](std::vector<int>& data, ncclComm_t comm) {
      EXPECT_SUCCESS(
          ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, comm, nullptr));
    };
    const auto messages = [&] {
      EXPECT_SUCCESS(ncclRecv(in.data(), in.size(), ncclInt32, before, firsts[at], nullptr));
      EXPECT_SUCCESS(ncclSend(out.data(), out.size(), ncclInt32, next, firsts[at], nullptr));
    };
    EXPECT_SUCCESS(ncclGroupStart());
    if (rank % 2 == 0) {
      messages();
      sum(one, firsts[at]);
      sum(two, seconds[at]);
    } else {
      sum(two, seconds[at]);
      sum(one, firsts[at]);
      messages();
    }
    EXPECT_SUCCESS(ncclGroupEnd());
    EXPECT_EQ(one, std::vector<int>(one.size(), ranks));
    EXPECT_EQ(two, std::vector<int>(two.size(), 2 * ranks));
    EXPECT_EQ(in, std::vector<int>(in.size(), before));
  });
  destroy_all(firsts);
  destroy_all(seconds);
}

// While a rank's group is under way in two communicators, the other rank aborts one of them.
TEST(NcclGroups, end_with_the_communicator_that_fails_and_the_other_one_goes_on) {
  const std::vector<ncclComm_t> sick = init_all(2), well = init_all(2);
  run_threads(2, [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    int one = 1, two = 1;
    if (rank == 0) {
      EXPECT_SUCCESS(ncclGroupStart());
      EXPECT_SUCCESS(ncclAllReduce(&one, &one, 1, ncclInt32, ncclSum, sick[at], nullptr));
      EXPECT_SUCCESS(ncclAllReduce(&two, &two, 1, ncclInt32, ncclSum, well[at], nullptr));
      EXPECT_EQ(ncclGroupEnd(), ncclRemoteError);
      EXPECT_EQ(two, 2);
    } else {
      EXPECT_SUCCESS(ncclCommAbort(sick[at]));
      EXPECT_SUCCESS(ncclAllReduce(&two, &two, 1, ncclInt32, ncclSum, well[at], nullptr));
      EXPECT_EQ(two, 2);
    }
    int three = 1;
    EXPECT_SUCCESS(ncclAllReduce(&three, &three, 1, ncclInt32, ncclSum, well[at], nullptr));
    EXPECT_EQ(three, 2);
  });
  EXPECT_SUCCESS(ncclCommAbort(sick[0]));
  destroy_all(well);
}

}  // namespace
}  // namespace sprat::nccl_tests
