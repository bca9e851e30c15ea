// How communicators come, how others are made of them, and how they end.
#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "plugins/nccl_abi/comm.hpp"
#include "plugins/nccl_abi/devices.hpp"
#include "plugins/nccl_abi/functions.hpp"
#include "plugins/nccl_abi/group.hpp"
#include "plugins/nccl_abi/meeting_store.hpp"
#include "sprat/config.hpp"

namespace sprat::nccl {
namespace {

/// As one rank of a new job of its own, whose ranks meet in the store of an id: what fails there is
/// nobody else's.
std::function<void(Comm&)> joining(MeetingPoint point, int rank, int ranks) {
  return [point = std::move(point), rank, ranks](Comm& comm) {
    Config config = Config::from_environment();
    config.rank = rank;
    config.size = ranks;
    const auto store = store_at(point);
    comm.become_ready(Communicator::join(config, *store));
  };
}

void check_rank(int rank, int ranks) {
  if (ranks <= 0 || rank < 0 || rank >= ranks) {
    refuse(ncclInvalidArgument, "rank " + std::to_string(rank) + " of " + std::to_string(ranks) +
                                    " ranks; a rank must be 0 or more, and below their number");
  }
}

ncclResult_t init_rank(ncclComm_t* out, int ranks, const ncclUniqueId& id, int rank,
                       const ncclConfig_t* config) {
  return guard_in_group([&] {
    deref(out, "newcomm") = nullptr;
    check_rank(rank, ranks);
    return add(Making{std::make_shared<Comm>(read_settings(config, {}), current_device()), nullptr,
                      out, joining(unpack(id), rank, ranks)});
  });
}

/// The parent of what is made now: joined, and not busy with what was begun without waiting. What a
/// group makes of it has not begun while the group is open.
std::shared_ptr<Comm> parent_of(ncclComm_t handle) {
  auto parent = comm_of(handle);
  parent->require_joined();
  if (parent->is_changing()) {
    refuse(ncclInvalidArgument,
           "another communicator is being made of this one; wait until ncclCommGetAsyncError gives "
           "ncclSuccess");
  }
  return parent;
}

std::vector<int> survivors(const Comm& comm, const int* excluded, int count) {
  if (count <= 0) {
    refuse(ncclInvalidArgument,
           "excludeRanksCount is " + std::to_string(count) + "; it must be at least 1");
  }
  deref(excluded, "excludeRanksList");
  std::vector<bool> stays(static_cast<std::size_t>(comm.size()), true);
  for (int at = 0; at < count; ++at) {
    const int rank = excluded[at];
    if (rank < 0 || rank >= comm.size() || !stays[static_cast<std::size_t>(rank)]) {
      refuse(ncclInvalidArgument, "excludeRanksList[" + std::to_string(at) + "] is " +
                                      std::to_string(rank) + "; its ranks are in 0 to " +
                                      std::to_string(comm.size() - 1) + ", each once");
    }
    stays[static_cast<std::size_t>(rank)] = false;
  }
  std::vector<int> left;
  for (int rank = 0; rank < comm.size(); ++rank) {
    if (stays[static_cast<std::size_t>(rank)]) {
      left.push_back(rank);
    }
  }
  if (std::ranges::find(left, comm.rank()) == left.end()) {
    refuse(ncclInvalidArgument, "rank " + std::to_string(comm.rank()) +
                                    " is to be excluded, so it must not call ncclCommShrink");
  }
  return left;
}

/// While every process lives, those who stay make a group that nobody else need know of. Once one
/// is lost the parent has failed as a whole, and those that are left find each other as
/// Communicator::shrink() says.
Communicator shrunk(Comm& parent, const std::vector<int>& left) {
  try {
    return parent.control().create_group(left, "shrunk",
                                         {.timeout = Config::from_environment().join_timeout});
  } catch (const Error&) {
    if (!parent.control().failure()) {
      throw;
    }
  }
  parent.require_not_aborted();  // that has failed it, too, and this rank stays no longer
  if (!parent.data().failure()) {
    parent.data().revoke("ncclCommShrink");
  }
  Communicator rest = parent.data().shrink(static_cast<int>(left.size()));
  if (static_cast<std::size_t>(rest.size()) != left.size()) {
    throw Error(ErrorCode::lost_peer, std::to_string(rest.size()) +
                                          " ranks came to ncclCommShrink, and " +
                                          std::to_string(left.size()) + " are not excluded");
  }
  return rest;
}

/// What existing ranks of a growing communicator tell each other: one of them has the id.
struct Offer {
  std::array<char, SPRAT_NCCL_ID_BYTES> id{};
  char here = 0;
};

ncclUniqueId agreed_id(Communicator& control, const ncclUniqueId* mine) {
  Offer offer;
  if (mine != nullptr) {
    std::memcpy(offer.id.data(), mine->internal, offer.id.size());
    offer.here = 1;
  }
  std::vector<Offer> all(static_cast<std::size_t>(control.size()));
  control
      .all_gather({&offer, sizeof(offer), DType::i8},
                  {all.data(), all.size() * sizeof(Offer), DType::i8})
      .wait();
  if (std::ranges::count(all, 1, &Offer::here) != 1) {
    refuse(ncclInvalidArgument,
           std::to_string(std::ranges::count(all, 1, &Offer::here)) +
               " of the existing ranks gave ncclCommGrow an id; exactly one must");
  }
  ncclUniqueId id;
  std::memcpy(id.internal, std::ranges::find(all, 1, &Offer::here)->id.data(), sizeof(id.internal));
  return id;
}

}  // namespace

ncclResult_t GetUniqueId(ncclUniqueId* id) {
  return guard([&] {
    deref(id, "uniqueId") = pack(open_meeting(Config::from_environment()));
    return ncclSuccess;
  });
}

ncclResult_t CommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return init_rank(comm, ranks, id, rank, nullptr);
}

ncclResult_t CommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                ncclConfig_t* config) {
  return init_rank(comm, ranks, id, rank, config);
}

// Several ids spread the load of a bootstrap that goes through one process; here it is a store that
// is asked once a rank, so the first is enough.
ncclResult_t CommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int id_count,
                                  ncclUniqueId* ids, ncclConfig_t* config) {
  return guard_in_group([&] {
    deref(ids, "commIds");
    if (id_count < 1 || id_count > ranks) {
      refuse(ncclInvalidArgument, "nId is " + std::to_string(id_count) + "; it must be in 1 to " +
                                      std::to_string(ranks));
    }
    return init_rank(comm, ranks, *ids, rank, config);
  });
}

ncclResult_t CommInitAll(ncclComm_t* comms, int devices, const int* list) {
  return guard([&] {
    deref(comms, "comms");
    check_rank(0, devices);
    std::fill_n(comms, devices, nullptr);
    const auto device_of = [list](int rank) { return list == nullptr ? rank : list[rank]; };
    for (int rank = 0; rank < devices; ++rank) {
      check_device(device_of(rank));
    }
    const MeetingPoint point = open_meeting(Config::from_environment());
    Group all;  // beside the caller's: NCCL carries this one out at once, too
    all.begin();
    for (int rank = 0; rank < devices; ++rank) {
      all.add(Making{std::make_shared<Comm>(Settings{}, device_of(rank)), nullptr, &comms[rank],
                     joining(point, rank, devices)});
    }
    return all.end();
  });
}

ncclResult_t CommSplit(ncclComm_t handle, int color, int key, ncclComm_t* part,
                       ncclConfig_t* config) {
  return guard_in_group([&] {
    deref(part, "newcomm") = nullptr;
    if (color < 0 && color != SPRAT_NCCL_NO_COLOR) {
      refuse(ncclInvalidArgument,
             "color is " + std::to_string(color) + "; it must be 0 or more, or NCCL_SPLIT_NOCOLOR");
    }
    auto parent = parent_of(handle);
    auto comm = std::make_shared<Comm>(read_settings(config, parent->settings()), parent->device());
    return add(Making{std::move(comm), parent, color < 0 ? nullptr : part,
                      [parent, color, key](Comm& made) {
                        auto group = parent->control().split(color, key);
                        if (group) {
                          made.become_ready(std::move(*group));
                        } else {
                          made.become_nobody();
                        }
                      }});
  });
}

ncclResult_t CommShrink(ncclComm_t handle, int* excluded, int excluded_count, ncclComm_t* rest,
                        ncclConfig_t* config, int flags) {
  return guard_in_group([&] {
    deref(rest, "newcomm") = nullptr;
    if (flags != 0 && flags != SPRAT_NCCL_SHRINK_ABORT) {
      refuse(ncclInvalidArgument, "shrinkFlags is " + std::to_string(flags) +
                                      "; it must be NCCL_SHRINK_DEFAULT or NCCL_SHRINK_ABORT");
    }
    auto parent = parent_of(handle);
    std::vector<int> left = survivors(*parent, excluded, excluded_count);
    auto comm = std::make_shared<Comm>(read_settings(config, parent->settings()), parent->device());
    // Last: a call that is refused changes nothing.
    if (flags == SPRAT_NCCL_SHRINK_ABORT) {
      parent->revoke("ncclCommShrink with NCCL_SHRINK_ABORT");
    }
    return add(Making{std::move(comm), parent, rest, [parent, left = std::move(left)](Comm& made) {
                        made.become_ready(shrunk(*parent, left));
                      }});
  });
}

ncclResult_t CommGetUniqueId(ncclComm_t comm, ncclUniqueId* id) {
  return guard([&] {
    comm_of(comm)->require_joined();
    return GetUniqueId(id);
  });
}

// The grown communicator is a job of its own; the old ranks keep their numbers in it.
ncclResult_t CommGrow(ncclComm_t handle, int ranks, const ncclUniqueId* id, int rank,
                      ncclComm_t* grown, ncclConfig_t* config) {
  if (handle == nullptr) {
    return guard_in_group(
        [&] { return init_rank(grown, ranks, deref(id, "uniqueId"), rank, config); });
  }
  return guard_in_group([&] {
    deref(grown, "newcomm") = nullptr;
    auto parent = parent_of(handle);
    if (rank != -1 || ranks <= parent->size()) {
      refuse(ncclInvalidArgument,
             "ncclCommGrow of a communicator of " + std::to_string(parent->size()) +
                 " ranks wants rank -1 of them, which is " + std::to_string(rank) +
                 " here, and more ranks, which are " + std::to_string(ranks));
    }
    std::optional<ncclUniqueId> mine;
    if (id != nullptr) {
      mine = *id;
    }
    auto comm = std::make_shared<Comm>(read_settings(config, parent->settings()), parent->device());
    return add(Making{std::move(comm), parent, grown, [parent, mine, ranks](Comm& made) {
                        const ncclUniqueId agreed =
                            agreed_id(parent->control(), mine ? &*mine : nullptr);
                        joining(unpack(agreed), parent->rank(), ranks)(made);
                      }});
  });
}

ncclResult_t CommFinalize(ncclComm_t handle) {
  return guard([&] {
    if (handle != nullptr) {
      comm_of(handle)->finalize();
    }
    return ncclSuccess;
  });
}

// A communicator that is still joining is waited for, as in NCCL; that has a deadline. Threads that
// are in a call of its keep it until they are out.
ncclResult_t CommDestroy(ncclComm_t handle) {
  return guard([&] {
    if (handle != nullptr) {
      comm_of(handle)->require_begun();
      take_comm(handle)->close();
    }
    return ncclSuccess;
  });
}

ncclResult_t CommAbort(ncclComm_t handle) {
  return guard([&] {
    if (handle != nullptr) {
      auto comm = take_comm(handle);
      comm->abort();
      if (comm->has_lane()) {
        // Its copies may stand behind work of the program's that only another abort ends: NCCL's
        // does not wait for them either.
        std::thread([ended = std::move(comm)]() mutable { ended.reset(); }).detach();
      }
    }
    return ncclSuccess;
  });
}

ncclResult_t CommRevoke(ncclComm_t handle, int flags) {
  return guard([&] {
    if (flags != 0) {
      refuse(ncclInvalidArgument,
             "revokeFlags is " + std::to_string(flags) + "; it must be NCCL_REVOKE_DEFAULT, 0");
    }
    const auto comm = comm_of(handle);
    comm->require_joined();
    comm->revoke("ncclCommRevoke");
    return ncclSuccess;
  });
}

}  // namespace sprat::nccl
