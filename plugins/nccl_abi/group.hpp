// What a thread calls between ncclGroupStart() and ncclGroupEnd(), and how it is carried out.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "plugins/nccl_abi/comm.hpp"
#include "plugins/nccl_abi/operation.hpp"

namespace sprat::nccl {

struct Queued {
  std::shared_ptr<Comm> comm;
  Operation operation;
  cudaStream_t stream = nullptr;
};

/// A communicator to be made. Those of one parent are made one after the other, in the order of the
/// calls: its ranks all make them so, or they would take part in each other's.
struct Making {
  std::shared_ptr<Comm> comm;    ///< What is made. It has a handle as soon as it stands in a group.
  std::shared_ptr<Comm> parent;  ///< Of what, or null.
  ncclComm_t* slot = nullptr;  ///< The caller's; null again if it fails. Null: nothing is returned.
  std::function<void(Comm&)> make;
  ncclComm_t handle = nullptr;  ///< What the slot got.
};

/// A factor that the program has destroyed. Operations of the group may still have it.
struct EndedScale {
  std::shared_ptr<Comm> comm;
  Scale scale;
};

/// At once, or at the end of this thread's group.
ncclResult_t add(Queued queued);
ncclResult_t add(Making making);
ncclResult_t add(EndedScale ended);

/// This thread's group.
class Group final {
 public:
  void begin() { ++depth_; }
  bool open() const noexcept { return depth_ > 0; }
  void add(Queued queued) { operations_.push_back(std::move(queued)); }
  /// Gives it its handle.
  void add(Making making);
  void add(EndedScale ended) { ended_.push_back(std::move(ended)); }
  /// A call in it has failed: it does nothing at its end but say so.
  ncclResult_t note(ncclResult_t result);
  ncclResult_t end();
  /// Ends without doing anything.
  ncclResult_t drop();

 private:
  ncclResult_t leave(bool carry_out);
  ncclResult_t carry_out_all();

  int depth_ = 0;
  ncclResult_t failed_ = ncclSuccess;
  std::vector<Queued> operations_;
  std::vector<Making> makings_;
  std::vector<EndedScale> ended_;
};
Group& group_of_this_thread() noexcept;

/// guard(), of a call that may stand in a group.
template <class Body>
ncclResult_t guard_in_group(Body&& body) noexcept {
  return group_of_this_thread().note(guard(std::forward<Body>(body)));
}

}  // namespace sprat::nccl
