// A communicator of NCCL's own library, of the same ranks as one of ours and beside it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <span>
#include <thread>

#include "plugins/nccl_abi/errors.hpp"
#include "plugins/nccl_abi/operation.hpp"
#include "plugins/nccl_abi/real/agreement.hpp"
#include "plugins/nccl_abi/real/library.hpp"
#include "sprat/communicator.hpp"
#include "sprat/device.hpp"

namespace sprat::nccl::real {

struct Place {
  int rank = 0, size = 1, device = 0;
};

/// Any thread; calls serialise. It is never of those that block: whoever waits sees when it ends.
/// A thread of its own sees to it that it ends when our communicator does, so that no stream waits
/// for ranks that are gone; and ours when it fails, so that the other ranks hear of it.
class HandOver final {
 public:
  /// Collective, and waits for the others, at most `patience` and while `trial` is well. `ours`
  /// outlives it. Throws.
  HandOver(const Library& library, const ncclUniqueId& id, const Place& place, Communicator& ours,
           Communicator& trial, std::chrono::milliseconds patience);
  /// Destroys it once it is finalized, and aborts it otherwise: may wait for the device. Not in a
  /// child of fork(), which has no watcher; nor leave().
  ~HandOver();
  HandOver(const HandOver&) = delete;
  HandOver& operator=(const HandOver&) = delete;

  /// Once all ranks have made theirs: what goes over. Before any other call.
  void open(Kinds kinds);
  /// Whether all memory that this rank uses is its device's: NCCL's kernels read no other.
  bool takes(const Operation& operation, Device& device) const;
  /// Whether sums with factors go over, and need the op there, too.
  bool reduces() const noexcept { return kinds_.reduce(); }

  ncclRedOp_t make_op(const Scale& scale, DType dtype);
  void destroy_op(ncclRedOp_t op);

  /// What it has failed by, of itself.
  Complaint complaint();
  /// Our communicator has been ended: it ends soon.
  void wake();
  /// The process ends, and this is left as it is: nothing calls NCCL any more.
  void leave();
  /// Once; waits until what has been enqueued has ended, well or not: no longer than our
  /// communicator is well.
  void finalize();

  struct Call {
    HandOver* to = nullptr;
    const Operation* operation = nullptr;
    cudaStream_t stream = nullptr;
  };
  /// One group of NCCL's. Returns once it is in the streams, which may be when other ranks have
  /// come to their first operations. Throws what NCCL says is wrong.
  friend void enqueue(std::span<const Call> calls);

 private:
  ncclResult_t start(const Operation& operation, cudaStream_t stream) const;
  ncclResult_t ask();
  void require_open() const;
  void await(Communicator& beside, std::chrono::milliseconds patience, const char* what);
  void watch();
  void abort();

  const Library& library_;
  const Place place_;
  Communicator& ours_;
  Kinds kinds_;
  std::mutex mutex_;  ///< Guards all below; not held while anything is waited for.
  std::condition_variable changed_;
  ncclComm_t comm_ = nullptr;  ///< Null once it has ended.
  Complaint complaint_;
  bool finalized_ = false, ending_ = false, look_ = false;
  std::thread watcher_;
};

void enqueue(std::span<const HandOver::Call> calls);

}  // namespace sprat::nccl::real
