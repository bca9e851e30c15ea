// A store for the ranks of one ncclUniqueId: served by a thread of the process that made the id,
// asked over TCP.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "plugins/nccl_abi/unique_id.hpp"
#include "sprat/config.hpp"
#include "sprat/store.hpp"

namespace sprat::nccl {

/// Opens a drawer in this process's server, which is started with the first one and ends with the
/// process. Any thread. Throws Error{unavailable} if no port or no thread can be had.
MeetingPoint open_meeting(const Config& config);

/// How long one address is waited for before the next one is tried.
struct AddressPatience {
  std::chrono::milliseconds connect = std::chrono::seconds(10);
  /// What an answer may take beyond the wait that was asked for.
  std::chrono::milliseconds answer = std::chrono::seconds(10);
};
/// The drawer, as a store. One connection a call. Throws Error{unavailable} if nobody answers at
/// any of its addresses.
std::unique_ptr<Store> store_at(const MeetingPoint& point, const AddressPatience& patience = {});

}  // namespace sprat::nccl
