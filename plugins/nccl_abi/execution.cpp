// How operations run where there is no device: they are done when the call, or the outermost
// ncclGroupEnd(), returns.
#include "plugins/nccl_abi/execution.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "plugins/nccl_abi/device_execution.hpp"

namespace sprat::nccl {
namespace {

/// What ranks read in the place of the caller's memory, while they do.
using Scaled = std::vector<std::byte>;

Work start_on_host(Queued& queued, std::vector<Scaled>& scaled, Options options) {
  Operation& operation = queued.operation;
  Communicator& communicator = queued.comm->data();
  const std::size_t given = extent(operation, communicator.rank(), communicator.size()).in;
  const void* in = operation.in;
  if (operation.scale && given > 0) {
    if (operation.scale->on_device != nullptr) {
      std::memcpy(operation.scale->number.data(), operation.scale->on_device,
                  size_of(operation.dtype));
    }
    scaled.emplace_back(given * size_of(operation.dtype));
    scale_elements(operation, in, given, scaled.back().data());
    in = scaled.back().data();
  }
  return start(communicator, operation, in, operation.out, options);
}

/// Sprat's short way: the call itself does it, and no other thread is woken.
void execute_alone(Queued& queued, Refusals& refused) {
  std::vector<Scaled> scaled;
  try {
    start_on_host(queued, scaled, {.blocking = true}).wait();
  } catch (...) {
    refused.add(queued.comm.get());
  }
}

void execute_on_host(std::span<Queued> operations, Refusals& refused) {
  std::vector<Scaled> scaled;
  std::vector<Work> works;
  for (Queued& queued : operations) {
    if (refused.has(queued.comm.get())) {
      continue;
    }
    try {
      works.push_back(start_on_host(queued, scaled, {}));
    } catch (...) {
      refused.add(queued.comm.get());
    }
  }
  // What has started uses the caller's memory: it is waited for before the caller hears of this.
  try {
    all_of(std::move(works)).wait();
  } catch (...) {
    refused.keep_failure();
  }
}

bool goes_over(const Queued& queued) {
  real::HandOver* const over = queued.comm->hand_over();
  return over != nullptr && over->takes(queued.operation, queued.comm->lane()->device());
}

void hand_over(std::span<const Queued> operations, Refusals& refused) {
  std::vector<real::HandOver::Call> calls;
  for (const Queued& queued : operations) {
    if (!refused.has(queued.comm.get())) {
      calls.push_back({queued.comm->hand_over(), &queued.operation, queued.stream});
    }
  }
  try {
    if (!calls.empty()) {
      enqueue(calls);
    }
  } catch (...) {
    refused.keep_failure();
  }
}

/// Of communicators that have calls on both ways, each of which joins the streams of its own alone.
std::vector<Queued> calls_on_both_ways(std::span<const Queued> ours,
                                       std::span<const Queued> theirs) {
  std::vector<Queued> both;
  const auto take = [&both](std::span<const Queued> from, std::span<const Queued> others) {
    for (const Queued& queued : from) {
      if (std::ranges::find(others, queued.comm, &Queued::comm) != others.end()) {
        both.push_back(queued);
      }
    }
  };
  take(ours, theirs);
  take(theirs, ours);
  return both;
}

/// Lanes' operations only queue; NCCL's own library may wait for other ranks to connect, who have
/// queued theirs by then.
void execute_behind_streams(std::span<Queued> operations, Refusals& refused) {
  if (std::ranges::none_of(operations, goes_over)) {
    return execute_on_devices(operations, refused);
  }
  std::vector<Queued> ours, theirs;
  for (Queued& queued : operations) {
    (goes_over(queued) ? theirs : ours).push_back(std::move(queued));
  }
  const std::vector<Queued> both = calls_on_both_ways(ours, theirs);
  join_streams(both, refused);
  execute_on_devices(ours, refused);
  hand_over(theirs, refused);
  join_streams(both, refused);
}

}  // namespace

// Those with a device come first: they only queue, so that no other rank waits for them while this
// one waits on the host. Mostly all are of one sort, and then nothing is moved, nor allocated for
// it.
ncclResult_t execute(std::span<Queued> operations) {
  const auto has_device = [](const Queued& queued) { return queued.comm->lane() != nullptr; };
  Refusals refused;
  if (std::ranges::all_of(operations, has_device)) {
    execute_behind_streams(operations, refused);
  } else {
    const auto host = std::stable_partition(operations.begin(), operations.end(), has_device);
    execute_behind_streams({operations.begin(), host}, refused);
    const std::span<Queued> on_host(host, operations.end());
    on_host.size() == 1 ? execute_alone(on_host.front(), refused)
                        : execute_on_host(on_host, refused);
  }
  refused.rethrow_first();
  return ncclSuccess;
}

}  // namespace sprat::nccl
