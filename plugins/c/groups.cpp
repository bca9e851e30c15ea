// The C API's groups: of ranks, of calls, and of works.
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plugins/c/handles.hpp"

namespace {

using namespace sprat;
using c::communicator_of;
using c::deref;
using c::guard;

sprat_comm* new_handle(Communicator communicator) {
  return std::make_unique<sprat_comm>(sprat_comm{std::move(communicator)}).release();
}

}  // namespace

sprat_status sprat_comm_duplicate(sprat_comm* comm, sprat_comm** out) {
  return guard([&] {
    deref(out, "out") = nullptr;
    *out = new_handle(communicator_of(comm).duplicate());
  });
}

sprat_status sprat_comm_create_group(sprat_comm* comm, const int* ranks, size_t count,
                                     const char* name, sprat_comm** out) {
  return guard([&] {
    deref(out, "out") = nullptr;
    deref(ranks, "ranks");
    deref(name, "name");
    *out = new_handle(communicator_of(comm).create_group({ranks, count}, name));
  });
}

sprat_status sprat_comm_shrink(sprat_comm* comm, int at_least, sprat_comm** out) {
  return guard([&] {
    deref(out, "out") = nullptr;
    *out = new_handle(communicator_of(comm).shrink(at_least));
  });
}

sprat_status sprat_comm_grow(sprat_comm* comm, int newcomers, const char* rendezvous,
                             int64_t patience_ms, sprat_comm** out) {
  return guard([&] {
    deref(out, "out") = nullptr;
    deref(rendezvous, "rendezvous");
    if (patience_ms < 0) {
      c::refuse("patience_ms is " + std::to_string(patience_ms) + "; it must not be negative");
    }
    std::optional<std::chrono::milliseconds> patience;
    if (patience_ms > 0) {
      patience = std::chrono::milliseconds(patience_ms);
    }
    *out = new_handle(communicator_of(comm).grow(newcomers, rendezvous, patience));
  });
}

sprat_status sprat_comm_failure(sprat_comm* comm, sprat_status* out) {
  return guard([&] {
    const Communicator& communicator = communicator_of(comm);
    deref(out, "out") = guard([&] {
      if (const auto failure = communicator.failure()) {
        throw *failure;  // guard() turns it into the status that every other call would return
      }
    });
  });
}

sprat_status sprat_group_begin(void) {
  return guard([] { c::group_of_this_thread().begin(); });
}

sprat_status sprat_group_end(sprat_work** out) {
  return guard([&] {
    // Made before the group ends: if memory is short now, its works are not lost.
    auto handle = out == nullptr ? nullptr : std::make_unique<sprat_work>();
    Work work = c::group_of_this_thread().end();
    if (out == nullptr) {
      work.wait();
    } else {
      handle->work = std::move(work);
      *out = handle.release();
    }
  });
}

sprat_status sprat_work_source(sprat_work* work, int* out) {
  return guard([&] { deref(out, "out") = deref(work, "work").work.source(); });
}

sprat_status sprat_work_wait_any(sprat_work* const* works, size_t count, size_t* index) {
  return guard([&] {
    deref(works, "works");
    deref(index, "index") = count;
    std::vector<Work> all;
    for (size_t i = 0; i < count; ++i) {
      all.push_back(deref(works[i], "works[i]").work);
    }
    *index = wait_any(all);
  });
}

namespace sprat::c {

Group& group_of_this_thread() noexcept {
  thread_local Group group;
  return group;
}

Work Group::end() {
  if (depth_ == 0) {
    refuse("sprat_group_end() without sprat_group_begin() on this thread");
  }
  // Groups may be nested. Only the outermost end gives the works of all.
  return --depth_ > 0 ? Work() : all_of(std::exchange(works_, {}));
}

}  // namespace sprat::c
