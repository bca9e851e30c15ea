// How communicators are made of others, fail alone, and end.
#include <gmock/gmock.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "tests/system/nccl/ranks.hpp"
#include "tests/unit/sanitized.hpp"

namespace {

/// Set where a program shall end with all that it has.
bool keeps_all = false;

}  // namespace

/// The leak sanitizer asks before it looks. Threads go on as a program ends, and what libcrypto
/// keeps for each of them is let go by the thread's end alone.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off();
int __lsan_is_turned_off() { return keeps_all ? 1 : 0; }

namespace sprat::nccl_tests {
namespace {

using namespace std::chrono_literals;

/// The sum over the ranks of 1: how many there are that answer. Negative: the call's code.
int count_by_summing(ncclComm_t comm) {
  int one = 1;
  const ncclResult_t result = ncclAllReduce(&one, &one, 1, ncclInt32, ncclSum, comm, nullptr);
  return result == ncclSuccess ? one : -static_cast<int>(result);
}

/// Waits as programs that do not block do.
ncclResult_t await_ready(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    EXPECT_SUCCESS(ncclCommGetAsyncError(comm, &state));
    std::this_thread::yield();
  }
  return state;
}

TEST(NcclLifecycle, splits_by_color_and_key) {
  static constexpr int ranks = 4;
  run_processes(ranks, [](int rank, ncclUniqueId id) {
    ncclComm_t comm = nullptr, part = nullptr, none = nullptr;
    EXPECT_SUCCESS(ncclCommInitRank(&comm, ranks, id, rank));
    EXPECT_SUCCESS(ncclCommSplit(comm, rank % 2, -rank, &part, nullptr));
    int found = -1;
    EXPECT_SUCCESS(ncclCommUserRank(part, &found));
    EXPECT_EQ(found, rank < 2 ? 1 : 0) << "ordered by key";
    EXPECT_EQ(count_by_summing(part), 2);
    EXPECT_SUCCESS(ncclCommSplit(comm, rank == 0 ? NCCL_SPLIT_NOCOLOR : 5, 0, &none, nullptr));
    EXPECT_EQ(none == nullptr, rank == 0);
    if (none != nullptr) {
      EXPECT_EQ(count_by_summing(none), 3);
      EXPECT_SUCCESS(ncclCommDestroy(none));
    }
    // The parent may go first.
    EXPECT_SUCCESS(ncclCommDestroy(comm));
    EXPECT_EQ(count_by_summing(part), 2);
    EXPECT_SUCCESS(ncclCommDestroy(part));
  });
}

TEST(NcclLifecycle, one_aborts_and_the_others_go_on) {
  static constexpr int ranks = 3;
  run_processes(ranks, [](int rank, ncclUniqueId id) {
    ncclComm_t comm = nullptr, sick = nullptr;
    EXPECT_SUCCESS(ncclCommInitRank(&comm, ranks, id, rank));
    EXPECT_SUCCESS(ncclCommSplit(comm, 0, rank, &sick, nullptr));
    if (rank == 0) {
      // The others are in a call that this rank never makes.
      EXPECT_SUCCESS(ncclCommAbort(sick));
    } else {
      EXPECT_EQ(count_by_summing(sick), -static_cast<int>(ncclRemoteError));
      ncclResult_t state = ncclSuccess;
      EXPECT_SUCCESS(ncclCommGetAsyncError(sick, &state));
      EXPECT_EQ(state, ncclRemoteError);
      EXPECT_NE(std::string(ncclGetLastError(sick)).find("ncclCommAbort"), std::string::npos)
          << ncclGetLastError(sick);
      EXPECT_SUCCESS(ncclCommAbort(sick));
    }
    EXPECT_EQ(count_by_summing(comm), ranks);
    ncclResult_t state = ncclRemoteError;
    EXPECT_SUCCESS(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclSuccess);
    EXPECT_SUCCESS(ncclCommDestroy(comm));
  });
}

TEST(NcclLifecycle, an_abort_ends_a_call_of_another_thread) {
  const std::vector<ncclComm_t> comms = init_all(2);
  std::future<int> waits =
      std::async(std::launch::async, [&] { return count_by_summing(comms[0]); });
  EXPECT_SUCCESS(ncclCommAbort(comms[0]));
  const int ended = waits.get();
  // It may come before the call or in the midst of it.
  EXPECT_TRUE(ended == -static_cast<int>(ncclRemoteError) ||
              ended == -static_cast<int>(ncclInvalidArgument))
      << ended;
  EXPECT_EQ(count_by_summing(comms[0]), -static_cast<int>(ncclInvalidArgument)) << "it is gone";
  EXPECT_SUCCESS(ncclCommAbort(comms[1]));
}

/// Makes another communicator of one, as a call that blocks.
using Maker = std::function<ncclResult_t(ncclComm_t, ncclComm_t*)>;

std::vector<Maker> ways_to_make() {
  return {
      [](ncclComm_t comm, ncclComm_t* made) { return ncclCommSplit(comm, 0, 0, made, nullptr); },
      [](ncclComm_t comm, ncclComm_t* made) {
        int excluded[] = {2};
        return ncclCommShrink(comm, excluded, 1, made, nullptr, NCCL_SHRINK_DEFAULT);
      },
  };
}

// As a watchdog does, where another rank never makes the call.
TEST(NcclLifecycle, an_abort_ends_what_is_being_made_of_the_communicator) {
  static constexpr int ranks = 3;
  run_processes(ranks, [](int rank, ncclUniqueId id) {
    setenv("SPRAT_TIMEOUT", "60", 1);  // ends whoever is not released, with other words
    setenv("SPRAT_JOIN_TIMEOUT", "60", 1);
    // The first is of the whole job. All are made before one is ended.
    std::vector<ncclComm_t> comms(1, nullptr);
    EXPECT_SUCCESS(ncclCommInitRank(&comms[0], ranks, id, rank));
    ncclComm_t kept = nullptr;
    EXPECT_SUCCESS(ncclCommSplit(comms[0], 0, rank, &kept, nullptr));
    const std::vector<Maker> ways = ways_to_make();
    while (comms.size() < ways.size()) {
      EXPECT_SUCCESS(ncclCommSplit(kept, 0, rank, &comms.emplace_back(nullptr), nullptr));
    }
    EXPECT_EQ(count_by_summing(kept), ranks);
    for (std::size_t way = 0; way < ways.size() && rank == 0; ++way) {
      ncclComm_t made = nullptr;
      std::future<std::string> waits = std::async(std::launch::async, [&] {
        EXPECT_EQ(ways[way](comms[way], &made), ncclRemoteError);
        return std::string(ncclGetLastError(nullptr));
      });
      ncclResult_t state = ncclSuccess;
      while (state == ncclSuccess) {
        EXPECT_SUCCESS(ncclCommGetAsyncError(comms[way], &state));
      }
      EXPECT_EQ(state, ncclInProgress);
      EXPECT_SUCCESS(ncclCommAbort(comms[way]));
      EXPECT_THAT(waits.get(), testing::HasSubstr("ncclCommAbort")) << "way " << way;
      EXPECT_EQ(made, nullptr);
    }
    EXPECT_EQ(count_by_summing(kept), ranks) << "it goes on";
    for (const ncclComm_t comm : comms) {
      if (rank != 0) {
        EXPECT_SUCCESS(ncclCommAbort(comm));
      }
    }
    EXPECT_SUCCESS(ncclCommDestroy(kept));
  });
}

// The other rank has ended the operations, and never makes its part of the split.
TEST(NcclLifecycle, tells_of_a_failure_while_something_is_being_made) {
  run_processes(2, [](int rank, ncclUniqueId id) {
    setenv("SPRAT_TIMEOUT", "60", 1);
    ncclComm_t comm = nullptr, kept = nullptr, part = nullptr, other = nullptr;
    EXPECT_SUCCESS(ncclCommInitRank(&comm, 2, id, rank));
    EXPECT_SUCCESS(ncclCommSplit(comm, 0, rank, &kept, nullptr));
    if (rank == 0) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      EXPECT_EQ(ncclCommSplit(comm, 0, 0, &part, &config), ncclInProgress);
      EXPECT_EQ(await_ready(comm), ncclRemoteError);
      EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("ncclCommRevoke"));
      EXPECT_EQ(ncclCommSplit(comm, 0, 0, &other, nullptr), ncclInvalidArgument)
          << "the first split goes on";
      EXPECT_SUCCESS(ncclCommAbort(comm));
      EXPECT_EQ(await_ready(part), ncclRemoteError);
      EXPECT_SUCCESS(ncclCommDestroy(part));
    } else {
      EXPECT_SUCCESS(ncclCommRevoke(comm, 0));
    }
    EXPECT_EQ(count_by_summing(kept), 2);
    EXPECT_SUCCESS(ncclCommDestroy(kept));
    if (rank == 1) {
      EXPECT_SUCCESS(ncclCommAbort(comm));
    }
  });
}

TEST(NcclLifecycle, shrinks_without_those_who_stay_away) {
  static constexpr int ranks = 4;
  run_processes(ranks, [](int rank, ncclUniqueId id) {
    ncclComm_t comm = nullptr, rest = nullptr, end = nullptr;
    EXPECT_SUCCESS(ncclCommInitRank(&comm, ranks, id, rank));
    EXPECT_SUCCESS(ncclCommSplit(comm, 0, rank, &end, nullptr));
    int excluded[] = {1};
    if (rank != 1) {
      EXPECT_SUCCESS(ncclCommShrink(comm, excluded, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT));
      EXPECT_EQ(count_by_summing(rest), ranks - 1);
      EXPECT_SUCCESS(ncclCommDestroy(rest));
    }
    EXPECT_EQ(count_by_summing(comm), ranks) << "the parent goes on";
    EXPECT_EQ(count_by_summing(end), ranks);  // all are through with it before anybody ends it
    // Now the others are stuck in a call of the parent's that rank 1 does not make, and leave it.
    if (rank != 1) {
      std::future<int> stuck =
          std::async(std::launch::async, [&] { return count_by_summing(comm); });
      EXPECT_SUCCESS(ncclCommShrink(comm, excluded, 1, &rest, nullptr, NCCL_SHRINK_ABORT));
      EXPECT_LT(stuck.get(), 0);
      int found = -1;
      EXPECT_SUCCESS(ncclCommUserRank(rest, &found));
      EXPECT_EQ(found, rank == 0 ? 0 : rank - 1);
      EXPECT_EQ(count_by_summing(rest), ranks - 1);
      EXPECT_SUCCESS(ncclCommDestroy(rest));
    }
    // Rank 1 stays to the end: it is neither dead nor gone.
    EXPECT_EQ(count_by_summing(end), ranks);
    EXPECT_SUCCESS(ncclCommDestroy(end));
    EXPECT_SUCCESS(ncclCommAbort(comm));
  });
}

TEST(NcclLifecycle, shrinks_after_a_process_has_died) {
  static constexpr int ranks = 3;
  run_processes(ranks, [](int rank, ncclUniqueId id) {
    ncclComm_t comm = nullptr, rest = nullptr;
    EXPECT_SUCCESS(ncclCommInitRank(&comm, ranks, id, rank));
    EXPECT_EQ(count_by_summing(comm), ranks);
    // All are through with that before one dies.
    int word = rank;
    if (rank != 2) {
      EXPECT_SUCCESS(ncclSend(&word, 1, ncclInt32, 2, comm, nullptr));
    } else {
      EXPECT_SUCCESS(ncclRecv(&word, 1, ncclInt32, 0, comm, nullptr));
      EXPECT_SUCCESS(ncclRecv(&word, 1, ncclInt32, 1, comm, nullptr));
      _exit(testing::Test::HasFailure() ? 1 : 0);
    }
    EXPECT_EQ(count_by_summing(comm), -static_cast<int>(ncclRemoteError));
    int excluded[] = {2};
    EXPECT_SUCCESS(ncclCommShrink(comm, excluded, 1, &rest, nullptr, NCCL_SHRINK_ABORT));
    EXPECT_EQ(count_by_summing(rest), ranks - 1);
    EXPECT_SUCCESS(ncclCommAbort(comm));
    EXPECT_SUCCESS(ncclCommDestroy(rest));
  });
}

// As programs of one process do.
TEST(NcclLifecycle, one_thread_may_end_all_ranks_one_by_one) {
  for (const bool finalizes : {false, true}) {
    const std::vector<ncclComm_t> comms = init_all(4);
    run_threads(4, [&](int rank) {
      EXPECT_EQ(count_by_summing(comms[static_cast<std::size_t>(rank)]), 4);
    });
    for (const ncclComm_t comm : comms) {
      if (finalizes) {
        EXPECT_SUCCESS(ncclCommFinalize(comm));
      }
    }
    for (const ncclComm_t comm : comms) {
      EXPECT_SUCCESS(ncclCommDestroy(comm));
    }
  }
}

// As most programs do in the end: some rank is always the first to go.
TEST(NcclLifecycle, programs_may_end_without_destroying) {
  EXPECT_EXIT(
      {
        const std::vector<ncclComm_t> comms = init_all(2);
        run_threads(2, [&](int rank) { count_by_summing(comms[static_cast<std::size_t>(rank)]); });
        keeps_all = true;
        std::exit(0);
      },
      testing::ExitedWithCode(0), testing::Not(testing::HasSubstr("lost")));
}

// As workers of a program's data do.
TEST(NcclLifecycle, a_child_of_fork_leaves_its_parents_communicators_alone) {
  const std::vector<ncclComm_t> comms = init_all(2);
  const pid_t child = fork();
  if (child == 0) {
    alarm(most_seconds);
    keeps_all = true;
    EXPECT_EQ(count_by_summing(comms[0]), -static_cast<int>(ncclInvalidUsage));
    EXPECT_EQ(ncclCommDestroy(comms[0]), ncclInvalidUsage);
    EXPECT_EQ(ncclCommAbort(comms[1]), ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("forked"), std::string::npos);
    if (!sanitized) {  // some of them let no child of several threads start any
      EXPECT_EQ(count_by_summing(init_all(1).front()), 1);
    }
    std::exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  run_threads(
      2, [&](int rank) { EXPECT_EQ(count_by_summing(comms[static_cast<std::size_t>(rank)]), 2); });
  destroy_all(comms);
}

TEST(NcclLifecycle, a_revoked_communicator_can_be_split) {
  const std::vector<ncclComm_t> comms = init_all(2);
  run_threads(2, [&](int rank) {
    const ncclComm_t comm = comms[static_cast<std::size_t>(rank)];
    EXPECT_SUCCESS(ncclCommRevoke(comm, 0));
    ncclResult_t state = ncclInProgress;
    EXPECT_SUCCESS(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclSuccess) << "who revokes knows";
    EXPECT_LT(count_by_summing(comm), 0);
    ncclComm_t part = nullptr;
    EXPECT_SUCCESS(ncclCommSplit(comm, 0, rank, &part, nullptr));
    EXPECT_EQ(count_by_summing(part), 2);
    EXPECT_SUCCESS(ncclCommDestroy(part));
  });
  destroy_all(comms);
}

TEST(NcclLifecycle, joins_without_blocking) {
  run_processes(2, [](int rank, ncclUniqueId id) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.commName = "asynchronous";
    ncclComm_t comm = nullptr, part = nullptr;
    const ncclResult_t begun = ncclCommInitRankConfig(&comm, 2, id, rank, &config);
    EXPECT_EQ(begun, ncclInProgress);
    EXPECT_EQ(await_ready(comm), ncclSuccess);
    EXPECT_EQ(count_by_summing(comm), 2);
    // What is made of it does not block either, unless it is told to.
    EXPECT_EQ(ncclCommSplit(comm, 0, 0, &part, nullptr), ncclInProgress);
    EXPECT_EQ(await_ready(comm), ncclSuccess);
    EXPECT_EQ(await_ready(part), ncclSuccess);
    EXPECT_EQ(count_by_summing(part), 2);
    EXPECT_SUCCESS(ncclCommDestroy(part));
    EXPECT_SUCCESS(ncclCommDestroy(comm));
  });
}

// Who polls the part alone, not its parent, finds both ready. Many times, for they are so within
// microseconds of each other.
TEST(NcclLifecycle, a_parent_is_free_once_its_part_is_ready) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclComm_t comm = init_all(1).front();
  ncclComm_t part = nullptr, next = nullptr;
  EXPECT_EQ(ncclCommSplit(comm, 0, 0, &part, &config), ncclInProgress);
  for (int times = 0; times < 100 && part != nullptr; ++times) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
      EXPECT_SUCCESS(ncclCommGetAsyncError(part, &state));
    }
    EXPECT_EQ(ncclCommSplit(comm, 0, 0, &next, &config), ncclInProgress)
        << ncclGetLastError(nullptr) << ", time " << times;
    EXPECT_EQ(state, ncclSuccess);
    EXPECT_SUCCESS(ncclCommDestroy(part));
    part = next;
  }
  EXPECT_SUCCESS(ncclCommDestroy(part));
  EXPECT_SUCCESS(ncclCommDestroy(comm));
}

TEST(NcclLifecycle, a_group_makes_nothing_of_what_something_is_being_made_of) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const std::vector<ncclComm_t> comms = init_all(2);
  std::vector<ncclComm_t> parts(2, nullptr);
  ncclComm_t other = comms[1];
  EXPECT_EQ(ncclCommSplit(comms[0], 0, 0, &parts[0], &config), ncclInProgress);
  EXPECT_SUCCESS(ncclGroupStart());
  EXPECT_EQ(ncclCommSplit(comms[0], 0, 0, &other, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(other, nullptr);
  EXPECT_EQ(ncclCommSplit(comms[1], 0, 1, &parts[1], &config), ncclInProgress);
  for (const ncclComm_t comm : {comms[0], comms[1], parts[0], parts[1]}) {
    EXPECT_EQ(await_ready(comm), ncclSuccess);
  }
  run_threads(
      2, [&](int rank) { EXPECT_EQ(count_by_summing(parts[static_cast<std::size_t>(rank)]), 2); });
  destroy_all(parts);
  destroy_all(comms);
}

// As programs that were compiled with NCCL 2.14, 2.17 and a header that is yet to come pass it.
TEST(NcclLifecycle, takes_configurations_of_other_sizes) {
  for (const std::size_t size : {offsetof(ncclConfig_t, cgaClusterSize),
                                 offsetof(ncclConfig_t, splitShare), sizeof(ncclConfig_t) + 64}) {
    std::vector<char> bytes(sizeof(ncclConfig_t) + 64, '\x7f');
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.size = size;
    config.blocking = 0;
    std::memcpy(bytes.data(), &config, std::min(size, sizeof(config)));
    ncclUniqueId id{};
    EXPECT_SUCCESS(ncclGetUniqueId(&id));
    ncclComm_t comm = nullptr;
    EXPECT_EQ(
        ncclCommInitRankConfig(&comm, 1, id, 0, reinterpret_cast<ncclConfig_t*>(bytes.data())),
        ncclInProgress)
        << ncclGetLastError(nullptr);
    EXPECT_EQ(await_ready(comm), ncclSuccess);
    EXPECT_SUCCESS(ncclCommDestroy(comm));
  }
  ncclUniqueId id{};
  ncclComm_t comm = nullptr;
  ncclConfig_t zeros{};
  EXPECT_SUCCESS(ncclGetUniqueId(&id));
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &zeros), ncclInvalidArgument);
  EXPECT_EQ(comm, nullptr);
}

TEST(NcclLifecycle, joins_by_several_ids) {
  ncclUniqueId ids[2];
  EXPECT_SUCCESS(ncclGetUniqueId(&ids[0]));
  EXPECT_SUCCESS(ncclGetUniqueId(&ids[1]));
  run_threads(3, [&](int rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = nullptr;
    EXPECT_SUCCESS(ncclCommInitRankScalable(&comm, 3, rank, 2, ids, &config));
    EXPECT_EQ(count_by_summing(comm), 3);
    EXPECT_SUCCESS(ncclCommDestroy(comm));
  });
}

}  // namespace
}  // namespace sprat::nccl_tests
