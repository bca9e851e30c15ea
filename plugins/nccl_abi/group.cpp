// Groups: operations that start together, communicators that are made together.
#include "plugins/nccl_abi/group.hpp"

#include <cstddef>
#include <map>
#include <span>
#include <thread>
#include <utility>

#include "plugins/nccl_abi/execution.hpp"
#include "plugins/nccl_abi/functions.hpp"

namespace sprat::nccl {
namespace {

void carry_out(const Making& making) noexcept {
  try {
    if (making.parent) {
      making.parent->require_not_aborted();
    }
    making.make(*making.comm);
  } catch (...) {
    const Complaint complaint = current_complaint();
    remember(complaint);
    making.comm->become_failed(complaint);
  }
}

/// Of what has become ready or has failed. Whoever waits for the parent may use it at once, for
/// calls do not look at its state; whoever waits for its state finds the parent free.
void conclude(const Making& making) noexcept {
  if (making.parent) {
    making.parent->end_change();
  }
  making.comm->conclude_joining();
}

void carry_out_in_order(const std::vector<Making>& chain) noexcept {
  for (const Making& making : chain) {
    carry_out(making);
    conclude(making);
  }
}

/// The handle of what is not made after all. The program may have aborted it meanwhile.
void take_back(const Making& making) noexcept {
  if (making.slot != nullptr) {
    *making.slot = nullptr;
    forget_comm(making.handle);
  }
}

/// Of what nobody carries out: the exception being handled says why.
void give_up(const std::vector<Making>& chain) noexcept {
  for (const Making& making : chain) {
    making.comm->become_failed(current_complaint());
    conclude(making);
  }
}

/// Each chain is made by one thread: of one parent, or one alone.
std::vector<std::vector<Making>> chains_of(std::vector<Making> makings) {
  std::vector<std::vector<Making>> chains;
  std::map<const Comm*, std::size_t> of_parent;
  for (Making& making : makings) {
    const Comm* const parent = making.parent.get();
    const auto found = of_parent.find(parent);
    if (parent != nullptr && found != of_parent.end()) {
      chains[found->second].push_back(std::move(making));
      continue;
    }
    of_parent[parent] = chains.size();
    chains.emplace_back().push_back(std::move(making));
  }
  return chains;
}

/// Takes the handles back of what failed; the first complaint's code.
ncclResult_t settle(const std::vector<std::vector<Making>>& chains) {
  ncclResult_t result = ncclSuccess;
  for (const auto& chain : chains) {
    for (const Making& making : chain) {
      try {
        making.comm->await_joined();
      } catch (...) {
        const ncclResult_t failed = remember(current_complaint());
        result = result == ncclSuccess ? failed : result;
        take_back(making);
      }
    }
  }
  return result;
}

ncclResult_t make_all(std::vector<Making> makings) {
  bool blocking = true;
  for (const Making& making : makings) {
    // As in NCCL, one that does not block makes the whole group not block.
    blocking &= making.comm->settings().blocking;
    making.comm->begin_joining();
    if (making.parent) {
      making.parent->begin_change();
    }
  }
  auto chains = chains_of(std::move(makings));
  if (!blocking) {
    for (auto& chain : chains) {
      try {
        // Nobody waits for it: the communicators live as long as it does, and joining has a
        // deadline.
        std::thread([chain] { carry_out_in_order(chain); }).detach();
      } catch (...) {
        give_up(chain);
      }
    }
    return ncclInProgress;
  }
  std::vector<std::thread> threads;
  for (std::size_t at = 1; at < chains.size(); ++at) {
    try {
      threads.emplace_back([&chain = chains[at]] { carry_out_in_order(chain); });
    } catch (...) {
      give_up(chains[at]);  // no thread to be had; the others hear of it, and end
    }
  }
  carry_out_in_order(chains.front());
  for (std::thread& thread : threads) {
    thread.join();
  }
  return settle(chains);
}

}  // namespace

Group& group_of_this_thread() noexcept {
  thread_local Group group;
  return group;
}

ncclResult_t Group::note(ncclResult_t result) {
  if (open() && failed_ == ncclSuccess && result != ncclInProgress) {
    failed_ = result;
  }
  return result;
}

ncclResult_t Group::end() { return leave(true); }
ncclResult_t Group::drop() { return leave(false); }

void Group::add(Making making) {
  if (making.slot != nullptr) {
    making.handle = add_comm(making.comm);
    *making.slot = making.handle;
  }
  makings_.push_back(std::move(making));
}

// What is queued is taken out first: a group that fails leaves nothing to the next one.
ncclResult_t Group::leave(bool carry_out) {
  if (depth_ == 0) {
    refuse(ncclInvalidUsage, "ncclGroupEnd without an ncclGroupStart before it");
  }
  if (--depth_ > 0) {
    return ncclSuccess;
  }
  const std::vector<EndedScale> ended = std::exchange(ended_, {});
  ncclResult_t result = std::exchange(failed_, ncclSuccess);
  if (result != ncclSuccess || !carry_out) {
    operations_.clear();
    for (const Making& making : std::exchange(makings_, {})) {
      take_back(making);
    }
  } else {
    result = carry_out_all();
  }
  for (const EndedScale& one : ended) {
    one.comm->end_scale(one.scale);
  }
  return result;
}

// The lists keep their memory, so that a program's groups allocate nothing once one was as long.
ncclResult_t Group::carry_out_all() {
  std::vector<Making> makings = std::exchange(makings_, {});
  ncclResult_t result = makings.empty() ? ncclSuccess : make_all(std::move(makings));
  if (!operations_.empty()) {
    // Moved aside, since what runs may call NCCL again on this thread.
    std::vector<Queued> operations = std::exchange(operations_, {});
    const ncclResult_t ran = guard([&] { return execute(operations); });
    // What is under way says nothing of what was refused.
    const bool is_well = result == ncclSuccess || result == ncclInProgress;
    result = is_well && ran != ncclSuccess ? ran : result;
    operations.clear();
    operations_ = std::move(operations);
  }
  return result;
}

ncclResult_t add(Queued queued) {
  Group& group = group_of_this_thread();
  if (group.open()) {
    group.add(std::move(queued));
    return ncclSuccess;
  }
  return execute({&queued, 1});
}

ncclResult_t add(Making making) {
  Group& group = group_of_this_thread();
  if (group.open()) {
    group.add(std::move(making));
    return ncclSuccess;
  }
  Group alone;
  alone.begin();
  alone.add(std::move(making));
  return alone.end();
}

ncclResult_t add(EndedScale ended) {
  Group& group = group_of_this_thread();
  if (group.open()) {
    group.add(std::move(ended));
  } else {
    ended.comm->end_scale(ended.scale);
  }
  return ncclSuccess;
}

ncclResult_t GroupStart(void) {
  group_of_this_thread().begin();
  return ncclSuccess;
}

ncclResult_t GroupEnd(void) {
  return guard([] { return group_of_this_thread().end(); });
}

// Nothing runs, as in NCCL. How long it would take is not told: -1 is NCCL's word for that.
ncclResult_t GroupSimulateEnd(ncclSimInfo_t* info) {
  return guard([&] {
    const ncclResult_t result = group_of_this_thread().drop();
    if (info != nullptr) {
      if (info->magic != SPRAT_NCCL_SIMULATION_MAGIC) {
        refuse(ncclInvalidArgument, "simInfo was not initialised by NCCL_SIM_INFO_INITIALIZER");
      }
      info->estimatedTime = -1;
    }
    return result;
  });
}

}  // namespace sprat::nccl
