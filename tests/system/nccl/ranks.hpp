// Ranks of a test: processes that get an ncclUniqueId through a pipe, or threads of this one.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "tests/system/nccl/api.h"

namespace sprat::nccl_tests {

/// A call that must succeed: what the library says of it otherwise.
#define EXPECT_SUCCESS(call)                                                            \
  do {                                                                                  \
    const ncclResult_t sprat_result = (call);                                           \
    EXPECT_EQ(sprat_result, ncclSuccess) << #call << ": " << ncclGetLastError(nullptr); \
  } while (false)

/// Tests on memory of the host have it so on machines with a GPU, too; those of streams say
/// otherwise before.
inline const int without_driver =
    setenv("SPRAT_CUDA_DRIVER", "/none: tests on memory of the host", 0);

/// A rank that hangs is killed by its alarm, and the test fails.
inline constexpr unsigned most_seconds = 120;

/// Runs `body(rank, id)` in `ranks` processes. Rank 0's has made the id. A process fails the test
/// by any failed expectation.
inline void run_processes(int ranks, const std::function<void(int, ncclUniqueId)>& body) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(most_seconds);
      ncclUniqueId id{};
      bool has_id = true;
      if (rank == 0) {
        EXPECT_SUCCESS(ncclGetUniqueId(&id));
        for (int other = 1; other < ranks; ++other) {
          has_id &= write(ends[1], &id, sizeof(id)) == sizeof(id);  // so little is written whole
        }
      } else {
        has_id = read(ends[0], &id, sizeof(id)) == sizeof(id);
      }
      EXPECT_TRUE(has_id);
      if (has_id) {
        body(rank, id);
      }
      fflush(nullptr);
      _exit(testing::Test::HasFailure() ? 1 : 0);
    }
    children.push_back(child);
  }
  close(ends[0]);
  close(ends[1]);
  for (int rank = 0; rank < ranks; ++rank) {
    int status = -1;
    waitpid(children[static_cast<std::size_t>(rank)], &status, 0);
    EXPECT_EQ(status, 0) << "rank " << rank << " of " << ranks;
  }
}

/// Runs `body(rank)` on `ranks` threads.
inline void run_threads(int ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&body, rank] { body(rank); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

/// One communicator a rank, all in this process.
inline std::vector<ncclComm_t> init_all(int ranks) {
  std::vector<ncclComm_t> comms(static_cast<std::size_t>(ranks), nullptr);
  // Without a driver every number is a device; with one, all ranks have the first.
  const std::vector<int> devices(comms.size(), 0);
  EXPECT_SUCCESS(ncclCommInitAll(comms.data(), ranks, devices.data()));
  return comms;
}

inline void destroy_all(const std::vector<ncclComm_t>& comms) {
  run_threads(static_cast<int>(comms.size()), [&](int rank) {
    EXPECT_SUCCESS(ncclCommDestroy(comms[static_cast<std::size_t>(rank)]));
  });
}

}  // namespace sprat::nccl_tests
