// Memory that NCCL gives out, and memory that programs tell it of.
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "plugins/nccl_abi/comm.hpp"
#include "plugins/nccl_abi/devices.hpp"
#include "plugins/nccl_abi/functions.hpp"
#include "sprat/buffer.hpp"

namespace sprat::nccl {
namespace {

/// Of the host, or of a device that is there.
struct GivenMemory {
  Memory host;
  std::shared_ptr<Device> device;
};

/// What ncclMemAlloc() has given out; any thread. Never destroyed, as what programs leave behind
/// may be in use to the end.
struct Given {
  std::mutex mutex;  ///< Guards the table.
  std::unordered_map<void*, GivenMemory> table;
};
Given& given() {
  static Given& all = *new Given;
  return all;
}

}  // namespace

// Without a driver: memory that ranks of this host read in place.
ncclResult_t MemAlloc(void** data, size_t bytes) {
  return guard([&] {
    deref(data, "ptr") = nullptr;
    if (bytes == 0) {
      refuse(ncclInvalidArgument, "size is 0; ncclMemAlloc gives at least one byte");
    }
    GivenMemory memory{{}, device_at(current_device())};
    if (!memory.device) {
      memory.host = Memory(bytes);
    }
    void* const address = memory.device ? memory.device->allocate(bytes) : memory.host.data();
    const std::lock_guard lock(given().mutex);
    given().table.emplace(address, std::move(memory));
    *data = address;
    return ncclSuccess;
  });
}

ncclResult_t MemFree(void* data) {
  return guard([&] {
    if (data == nullptr) {
      return ncclSuccess;
    }
    std::unique_lock lock(given().mutex);
    const auto node = given().table.extract(data);
    lock.unlock();  // a device may be waited for
    if (node.empty()) {
      refuse(ncclInvalidArgument, "ptr is not from ncclMemAlloc, or has been freed");
    }
    if (node.mapped().device) {
      node.mapped().device->free(data);
    }
    return ncclSuccess;
  });
}

// Sprat needs no registration: any memory will do. So this is accepted, and changes nothing.
ncclResult_t CommRegister(ncclComm_t comm, void* data, size_t /*bytes*/, void** handle) {
  return guard([&] {
    const auto owner = comm_of(comm);
    owner->require_joined();
    deref(handle, "handle") = nullptr;
    deref(static_cast<char*>(data), "buff");
    *handle = owner->add_range({RangeKind::registered, data});
    return ncclSuccess;
  });
}

ncclResult_t CommDeregister(ncclComm_t comm, void* handle) {
  return guard([&] {
    comm_of(comm)->remove_range(handle, RangeKind::registered, "handle");
    return ncclSuccess;
  });
}

// Collectives on a window's memory run as on any other; what would reach into peers' windows is
// refused (refused.cpp).
ncclResult_t CommWindowRegister(ncclComm_t comm, void* data, size_t /*bytes*/, ncclWindow_t* window,
                                int /*flags*/) {
  return guard([&] {
    const auto owner = comm_of(comm);
    owner->require_joined();
    deref(window, "win") = nullptr;
    deref(static_cast<char*>(data), "buff");
    *window = static_cast<ncclWindow_t>(owner->add_range({RangeKind::window, data}));
    return ncclSuccess;
  });
}

ncclResult_t CommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return guard([&] {
    const auto owner = comm_of(comm);
    if (window != nullptr) {
      owner->remove_range(window, RangeKind::window, "win");
    }
    return ncclSuccess;
  });
}

ncclResult_t WinGetUserPtr(ncclComm_t comm, ncclWindow_t window, void** data) {
  return guard([&] {
    deref(data, "outUserPtr") = comm_of(comm)->range_of(window, RangeKind::window, "win").data;
    return ncclSuccess;
  });
}

}  // namespace sprat::nccl
