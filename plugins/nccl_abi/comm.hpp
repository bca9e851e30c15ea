// What an ncclComm_t stands for, and which of them there are.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "plugins/nccl_abi/abi.h"
#include "plugins/nccl_abi/errors.hpp"
#include "plugins/nccl_abi/operation.hpp"
#include "plugins/nccl_abi/real/hand_over.hpp"
#include "sprat/communicator.hpp"
#include "sprat/device.hpp"

namespace sprat::nccl {

/// What a program asks of a new communicator.
struct Settings {
  bool blocking = true;
  std::string name;
};
/// Of a configuration of any size: what it does not reach to is undefined. Null: `otherwise`.
/// Throws ncclInvalidArgument.
Settings read_settings(const ncclConfig_t* config, const Settings& otherwise);

/// Memory that a program has told a communicator of: as such, or as a window.
enum class RangeKind { registered, window };
struct Range {
  RangeKind kind{};
  void* data = nullptr;
};

/// One rank of a communicator. Any thread. It begins without ranks, joins once, and is ready or has
/// failed from then on.
class Comm final {
 public:
  Comm(Settings settings, int device) : settings_(std::move(settings)), device_(device) {}

  const Settings& settings() const noexcept { return settings_; }
  int device() const noexcept { return device_; }
  /// False in a child of fork(), which has none of its threads.
  bool here() const noexcept { return process_ == ::getpid(); }

  /// Once, before what follows: it is being made. Before that it stands in a group that has not
  /// ended.
  void begin_joining() { phase_.store(Phase::joining); }
  /// Throws ncclInvalidUsage before that: whoever waited for it might be who ends the group.
  void require_begun() const;
  /// Once: joined, with a communicator that is this one's alone. Collective: makes another one for
  /// the operations.
  void become_ready(Communicator control);
  /// Once, instead.
  void become_failed(Complaint complaint);
  /// Once, instead: this rank is in no part of a communicator that has been split.
  void become_nobody();
  /// Last, once what it is made of is free again: its state is told from here on, so that whoever
  /// waits for it alone may make the next one.
  void conclude_joining() { concluded_.store(true); }
  /// Blocks until joined or failed: that has a deadline, the configuration's join_timeout, or its
  /// timeout where it is split off another one. Throws what it failed by.
  void await_joined();

  /// Throws ncclInvalidArgument while it joins, and what it has failed by; ncclInvalidUsage once it
  /// is finalized or suspended.
  void require_usable() const;
  /// The same, of what makes others of it: allowed after a revoke, too.
  void require_joined() const;
  // Of one that has joined:
  int rank() const noexcept { return control_->rank(); }
  int size() const noexcept { return control_->size(); }
  Communicator& control() noexcept { return *control_; }  ///< Makes others; carries no operation.
  Communicator& data() noexcept { return *data_; }
  /// Before it has joined, too.
  bool has_lane() const noexcept { return phase_.load() == Phase::ready && lane_ != nullptr; }
  /// Null without a device: operations run on memory of the host then.
  DeviceLane* lane() noexcept { return lane_.get(); }
  /// Null where nothing goes over to NCCL's own library; never without a lane.
  real::HandOver* hand_over() noexcept { return hand_over_.get(); }

  /// What ncclCommGetAsyncError() says.
  Complaint state() const;
  /// Ends what is under way, here and on the other ranks. Never blocks.
  void revoke(const char* why);
  /// The same, and what is being made of it.
  void abort();
  /// Throws ncclRemoteError after that: nothing more is made of it.
  void require_not_aborted() const;
  void finalize();
  /// Before it is destroyed: waits while it joins, and for what is under way.
  void close();
  void suspend(bool yes) { suspended_.store(yes); }
  bool suspended() const noexcept { return suspended_.load(); }

  /// While something is made of it, by any thread.
  void begin_change() { changes_.fetch_add(1); }
  void end_change() { changes_.fetch_sub(1); }
  bool is_changing() const noexcept { return changes_.load() > 0; }

  ncclRedOp_t add_scale(Scale scale, DType dtype);
  /// No later operation has it; those that have been called still do, until end_scale(). Throws
  /// ncclInvalidArgument for one that is not this communicator's.
  Scale remove_scale(ncclRedOp_t op);
  void end_scale(const Scale& scale);
  /// Throws likewise, and if it was made for another type.
  Scale scale_of(ncclRedOp_t op, DType dtype) const;

  /// The handle, which ends with the communicator at the latest.
  void* add_range(Range range);
  /// Throws ncclInvalidArgument for one that is not this communicator's, or of the other kind.
  Range range_of(const void* handle, RangeKind kind, const char* what) const;
  void remove_range(const void* handle, RangeKind kind, const char* what);

 private:
  /// What its operations have failed by; none if it is well, or if this rank revoked it itself.
  Complaint failure() const;
  void settle();
  void end_data(const char* why);
  const Range& range_at(const void* handle, RangeKind kind, const char* what) const;

  enum class Phase { queued, joining, ready, failed, nobody };
  struct Made {
    Scale scale;
    DType dtype;
  };

  const Settings settings_;
  const int device_;
  const pid_t process_ = ::getpid();
  /// Guards complaint_, made_ and ranges_, and orders changes of phase_.
  mutable std::mutex mutex_;
  std::condition_variable joined_;
  Complaint complaint_;
  std::unordered_map<int, Made> made_;
  std::unordered_map<const void*, Range> ranges_;
  /// Whoever reads ready here may use the communicators: they were there before.
  std::atomic<Phase> phase_{Phase::queued};
  std::atomic<int> changes_{0};
  std::atomic<bool> concluded_{false};
  std::atomic<bool> revoked_{false}, aborted_{false}, finalized_{false}, suspended_{false};
  std::optional<Communicator> control_, data_;
  std::unique_ptr<DeviceLane> lane_;  ///< On data_, which outlives it.
  /// Beside data_. It ends before the lane, whose copies may stand behind its kernels.
  std::unique_ptr<real::HandOver> hand_over_;
};

/// The process's communicators. A handle that is none of them, or none any more, is an error and no
/// crash.
ncclComm_t add_comm(std::shared_ptr<Comm> comm);
/// Throws ncclInvalidArgument, and ncclInvalidUsage in a child of fork().
std::shared_ptr<Comm> comm_of(ncclComm_t handle);
/// The same, and it is none any more.
std::shared_ptr<Comm> take_comm(ncclComm_t handle);
/// It is none any more, if it was one.
void forget_comm(ncclComm_t handle) noexcept;

}  // namespace sprat::nccl
