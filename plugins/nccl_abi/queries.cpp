// What a program may ask: versions, words for codes, a communicator's numbers and state.
#include <cstring>
#include <string>

#include "plugins/nccl_abi/comm.hpp"
#include "plugins/nccl_abi/environment.hpp"
#include "plugins/nccl_abi/functions.hpp"

namespace sprat::nccl {
namespace {

/// NCCL's numbers are there as soon as the call that makes the communicator has returned; here once
/// it has joined.
template <class Number>
ncclResult_t ask(ncclComm_t handle, int* out, const char* what, Number&& number) {
  return guard([&] {
    deref(out, what);
    const auto comm = comm_of(handle);
    comm->require_joined();
    *out = number(*comm);
    return ncclSuccess;
  });
}

/// A communicator without ranks, for functions that cannot say that something is wrong.
constexpr ncclTeam_t nobody = {0, 0, 0};

/// This rank's place among all; `nobody` if the handle is none.
ncclTeam_t world_of(ncclComm_t handle) noexcept {
  ncclTeam_t team = nobody;
  static_cast<void>(guard([&] {
    const auto comm = comm_of(handle);
    comm->require_joined();
    team = {comm->size(), comm->rank(), 1};
    return ncclSuccess;
  }));
  return team;
}

}  // namespace

ncclResult_t GetVersion(int* version) {
  return guard([&] {
    deref(version, "version") = answered_version();
    return ncclSuccess;
  });
}

const char* GetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "a call of CUDA failed (ncclGetLastError says which)";
    case ncclSystemError:
      return "the system or the machine lacks something (ncclGetLastError says what)";
    case ncclInternalError:
      return "a defect of Sprat or of a library below it (ncclGetLastError says more)";
    case ncclInvalidArgument:
      return "invalid argument (ncclGetLastError says which)";
    case ncclInvalidUsage:
      return "invalid usage (ncclGetLastError says why)";
    case ncclRemoteError:
      return "another rank has ended, failed or aborted, or a deadline has passed "
             "(ncclGetLastError says who)";
    case ncclInProgress:
      return "in progress";
    case ncclTimeout:
      return "timeout";
    case ncclNumResults:
      break;
  }
  return "unknown result code";
}

const char* GetLastError(ncclComm_t /*comm*/) { return last_message(); }

void ResetDebugInit(void) {}

ncclResult_t CommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  return guard([&] {
    deref(error, "asyncError");
    const Complaint state = comm_of(handle)->state();
    *error = state.result;
    if (state.result != ncclSuccess && state.result != ncclInProgress) {
      remember(state);
    }
    return ncclSuccess;
  });
}

ncclResult_t CommCount(ncclComm_t comm, int* count) {
  return ask(comm, count, "count", [](const Comm& of) { return of.size(); });
}

ncclResult_t CommUserRank(ncclComm_t comm, int* rank) {
  return ask(comm, rank, "rank", [](const Comm& of) { return of.rank(); });
}

ncclResult_t CommCuDevice(ncclComm_t comm, int* device) {
  return ask(comm, device, "device", [](const Comm& of) { return of.device(); });
}

// Sprat's communicators hold no memory of a device that they could give back: suspended ones only
// refuse to be used.
ncclResult_t CommSuspend(ncclComm_t handle, int flags) {
  return guard([&] {
    if (flags != SPRAT_NCCL_SUSPEND_MEMORY) {
      refuse(ncclInvalidArgument,
             "flags is " + std::to_string(flags) + "; it must be NCCL_SUSPEND_MEM");
    }
    const auto comm = comm_of(handle);
    comm->require_usable();
    comm->suspend(true);
    return ncclSuccess;
  });
}

ncclResult_t CommResume(ncclComm_t handle) {
  return guard([&] {
    const auto comm = comm_of(handle);
    comm->require_joined();
    if (!comm->suspended()) {
      refuse(ncclInvalidUsage, "the communicator is not suspended");
    }
    comm->suspend(false);
    return ncclSuccess;
  });
}

ncclResult_t CommMemStats(ncclComm_t handle, ncclCommMemStat_t which, uint64_t* value) {
  return guard([&] {
    deref(value, "value");
    const auto comm = comm_of(handle);
    if (static_cast<unsigned>(which) > ncclStatGpuMemTotal) {
      refuse(ncclInvalidArgument, "stat is none of ncclCommMemStat_t");
    }
    *value = which == ncclStatGpuMemSuspended && comm->suspended() ? 1 : 0;
    return ncclSuccess;
  });
}

ncclTeam_t TeamWorld(ncclComm_t comm) { return world_of(comm); }

// Peers cannot load from or store to each other's device memory, so each rank is alone in its team
// of those who can, and all ranks are the first of theirs.
ncclTeam_t TeamLsa(ncclComm_t comm) {
  return world_of(comm).nRanks == 0 ? nobody : ncclTeam_t{1, 0, 1};
}

ncclTeam_t TeamRail(ncclComm_t comm) { return world_of(comm); }

ncclTeam_t TeamCft(ncclComm_t /*comm*/, int /*mode*/) { return nobody; }

ncclTeam_t TeamCftMultimem(ncclComm_t /*comm*/) { return nobody; }

int TeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank) {
  return world_of(comm).rank + (rank - team.rank) * team.stride;
}

int TeamRankToLsa(ncclComm_t /*comm*/, ncclTeam_t team, int rank) {
  return (rank - team.rank) * team.stride;
}

}  // namespace sprat::nccl
