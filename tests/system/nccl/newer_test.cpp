// What came after NCCL 2.28, by our own declarations; calls that are refused; versions.
#include <cstdlib>
#include <string>

// Before ranks.hpp, which may bring nccl.h: both declare the same names, so this file has ours
// alone.
#undef SPRAT_NCCL_HEADER
#include "plugins/nccl_abi/abi.h"
#include "tests/system/nccl/ranks.hpp"

/// Written in C.
extern "C" int sum_of_ones_in_c(ncclComm_t comm);

namespace sprat::nccl_tests {
namespace {

TEST(NcclNewer, grows_by_ranks_that_come) {
  run_processes(3, [](int rank, ncclUniqueId id) {
    ncclComm_t comm = nullptr, grown = nullptr;
    // Ranks 0 and 1 are there first. The third gets an id for growing from the first, by way of a
    // communicator here.
    ncclComm_t all = nullptr;
    EXPECT_SUCCESS(ncclCommInitRank(&all, 3, id, rank));
    EXPECT_SUCCESS(ncclCommSplit(all, rank < 2 ? 0 : 1, 0, &comm, nullptr));
    ncclUniqueId more{};
    if (rank == 0) {
      EXPECT_SUCCESS(ncclCommGetUniqueId(comm, &more));
    }
    EXPECT_SUCCESS(ncclBroadcast(&more, &more, sizeof(more), ncclInt8, 0, all, nullptr));
    if (rank < 2) {
      EXPECT_SUCCESS(ncclCommGrow(comm, 3, rank == 0 ? &more : nullptr, -1, &grown, nullptr));
    } else {
      EXPECT_SUCCESS(ncclCommGrow(nullptr, 3, &more, 2, &grown, nullptr));
    }
    EXPECT_EQ(sum_of_ones_in_c(grown), 3);
    int found = -1;
    EXPECT_SUCCESS(ncclCommUserRank(grown, &found));
    EXPECT_EQ(found, rank);
    for (const ncclComm_t each : {grown, comm, all}) {
      EXPECT_SUCCESS(ncclCommDestroy(each));
    }
  });
}

TEST(NcclNewer, suspends_and_resumes) {
  const ncclComm_t comm = init_all(1).front();
  uint64_t bytes = 7;
  EXPECT_SUCCESS(ncclCommMemStats(comm, ncclStatGpuMemTotal, &bytes));
  EXPECT_EQ(bytes, 0u);
  EXPECT_SUCCESS(ncclCommSuspend(comm, SPRAT_NCCL_SUSPEND_MEMORY));
  EXPECT_EQ(sum_of_ones_in_c(comm), -static_cast<int>(ncclInvalidUsage));
  EXPECT_SUCCESS(ncclCommResume(comm));
  EXPECT_EQ(sum_of_ones_in_c(comm), 1);
  EXPECT_SUCCESS(ncclCommDestroy(comm));
}

TEST(NcclNewer, takes_configurations_of_single_calls) {
  const ncclComm_t comm = init_all(1).front();
  ncclCollConfig_t config{};
  config.size = sizeof(config);
  config.magic = SPRAT_NCCL_MAGIC;
  config.maxCTAs = 4;
  float in = 2, out = 0;
  EXPECT_SUCCESS(ncclAllReduceConfig(&in, &out, 1, ncclFloat32, ncclSum, comm, nullptr, &config));
  EXPECT_EQ(out, 2);
  EXPECT_SUCCESS(ncclAllReduceConfig(&in, &out, 1, ncclFloat32, ncclSum, comm, nullptr, nullptr));
  config.algSelection = "ring";
  config.forceAlgSelection = 1;
  EXPECT_EQ(ncclAllReduceConfig(&in, &out, 1, ncclFloat32, ncclSum, comm, nullptr, &config),
            ncclInvalidUsage);
  EXPECT_SUCCESS(ncclCommDestroy(comm));
}

TEST(NcclNewer, says_why_it_does_not_serve) {
  const ncclComm_t comm = init_all(1).front();
  EXPECT_EQ(ncclDevCommCreate(comm, nullptr, nullptr), ncclInvalidUsage);
  EXPECT_NE(std::string(ncclGetLastError(comm)).find("ncclDevCommCreate is not served"),
            std::string::npos);
  EXPECT_EQ(ncclPutSignal(nullptr, 0, ncclInt8, 0, nullptr, 0, 0, 0, 0, comm, nullptr),
            ncclInvalidUsage);
  EXPECT_EQ(ncclParamBind(nullptr, "x"), ncclInvalidUsage);
  const ncclTeam_t world = ncclTeamWorld(comm);
  EXPECT_EQ(world.nRanks, 1);
  EXPECT_EQ(ncclTeamWorld(nullptr).nRanks, 0);
  EXPECT_SUCCESS(ncclCommDestroy(comm));
}

TEST(NcclNewer, answers_the_version_that_is_asked_for) {
  int version = 0;
  EXPECT_SUCCESS(ncclGetVersion(&version));
  EXPECT_EQ(version, 22809);
  setenv("SPRAT_NCCL_VERSION", "2.32.3", 1);
  EXPECT_SUCCESS(ncclGetVersion(&version));
  EXPECT_EQ(version, 23203);
  setenv("SPRAT_NCCL_VERSION", "2.19.1", 1);
  EXPECT_EQ(ncclGetVersion(&version), ncclInvalidArgument);
  unsetenv("SPRAT_NCCL_VERSION");
}

}  // namespace
}  // namespace sprat::nccl_tests
