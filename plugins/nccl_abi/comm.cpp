// The life of a communicator: joining, ready, failed.
#include "plugins/nccl_abi/comm.hpp"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "plugins/nccl_abi/devices.hpp"
#include "plugins/nccl_abi/real/joining.hpp"

namespace sprat::nccl {
namespace {

struct Comms {
  std::mutex mutex;  ///< Guards the table; held across fork(), so that the child can take it.
  std::unordered_map<ncclComm_t, std::shared_ptr<Comm>> table;
};

/// Never destroyed: a program may leave communicators behind, whose threads go on until the process
/// is gone.
Comms& comms() {
  static Comms& all = *[] {
    auto* const made = new Comms;
    pthread_atfork([] { comms().mutex.lock(); }, [] { comms().mutex.unlock(); },
                   [] { comms().mutex.unlock(); });
    return made;
  }();
  return all;
}

/// Programs may end without destroying their communicators. Their ranks leave in good order then,
/// so that nobody takes them for lost. One with a device is left as it is: the driver may have
/// gone. So are those of a process that has forked this one.
void leave_all() noexcept {
  try {
    std::unordered_map<ncclComm_t, std::shared_ptr<Comm>> left;
    {
      const std::lock_guard lock(comms().mutex);
      left.swap(comms().table);
    }
    for (auto& [handle, comm] : left) {
      if (comm->has_lane() || !comm->here()) {
        if (comm->here() && comm->hand_over() != nullptr) {
          comm->hand_over()->leave();
        }
        static_cast<void>(new std::shared_ptr<Comm>(std::move(comm)));
      }
    }
  } catch (const std::exception&) {
    // The process ends, and its peers see that.
  }
}

[[noreturn]] void refuse_handle(ncclComm_t handle) {
  refuse(ncclInvalidArgument, handle == nullptr
                                  ? "comm is null"
                                  : "comm is no communicator, or one that has been destroyed");
}

/// Process-wide, so that an op of one communicator is none of another's.
std::atomic<int> next_op{ncclNumOps};

/// A pointer that nobody looks behind. No two are equal, as addresses of what has gone might be: so
/// a handle that is over is known for ever.
void* next_handle() {
  static std::atomic<std::uintptr_t> last{0};
  return reinterpret_cast<void*>(last.fetch_add(1) + 1);
}

}  // namespace

// Programs that were compiled with an older header have a shorter struct; with a newer one, a
// longer one, whose end says nothing that Sprat looks at. Channels, CTAs and the like are NCCL's
// kernels' and have no meaning here.
Settings read_settings(const ncclConfig_t* config, const Settings& otherwise) {
  if (config == nullptr) {
    return otherwise;
  }
  ncclConfig_t known{};
  known.blocking = SPRAT_NCCL_UNDEFINED;
  std::memcpy(&known, config, std::min(config->size, sizeof(known)));
  if (known.magic != SPRAT_NCCL_MAGIC || known.size < offsetof(ncclConfig_t, blocking)) {
    refuse(ncclInvalidArgument, "config was not initialised by NCCL_CONFIG_INITIALIZER");
  }
  const bool has_blocking = known.size >= offsetof(ncclConfig_t, cgaClusterSize) &&
                            known.blocking != SPRAT_NCCL_UNDEFINED;
  const bool has_name =
      known.size >= offsetof(ncclConfig_t, collnetEnable) && known.commName != nullptr;
  if (has_blocking && known.blocking != 0 && known.blocking != 1) {
    refuse(ncclInvalidArgument,
           "config.blocking is " + std::to_string(known.blocking) + "; it must be 0 or 1");
  }
  return {has_blocking ? known.blocking == 1 : true, has_name ? known.commName : ""};
}

// Operations have a communicator of their own: when they are revoked, the other one can still make
// new groups of the ranks.
void Comm::become_ready(Communicator control) {
  control_.emplace(std::move(control));
  data_.emplace(control_->duplicate(settings_.name));
  if (auto device = device_at(device_)) {
    lane_ = std::make_unique<DeviceLane>(*data_, std::move(device));
  }
  hand_over_ = real::join_beside(*control_, *data_, device_, lane_ != nullptr);
  const std::lock_guard lock(mutex_);
  if (aborted_.load()) {
    end_data("ncclCommAbort");
  }
  phase_.store(Phase::ready);
  joined_.notify_all();
}

void Comm::become_failed(Complaint complaint) {
  const std::lock_guard lock(mutex_);
  complaint_ = std::move(complaint);
  phase_.store(Phase::failed);
  joined_.notify_all();
}

void Comm::become_nobody() {
  const std::lock_guard lock(mutex_);
  phase_.store(Phase::nobody);
  joined_.notify_all();
}

void Comm::await_joined() {
  std::unique_lock lock(mutex_);
  joined_.wait(lock, [this] { return phase_.load() != Phase::joining; });
  if (phase_.load() == Phase::failed) {
    throw Refusal(complaint_.result, complaint_.message);
  }
}

void Comm::require_begun() const {
  if (phase_.load() == Phase::queued) {
    refuse(ncclInvalidUsage,
           "the communicator is made by a group that has not ended; call ncclGroupEnd first");
  }
}

void Comm::require_joined() const {
  require_begun();
  if (phase_.load() == Phase::joining) {
    refuse(
        ncclInvalidArgument,
        "the communicator has not joined yet; wait until ncclCommGetAsyncError gives ncclSuccess");
  }
  if (phase_.load() == Phase::failed) {
    const std::lock_guard lock(mutex_);
    throw Refusal(complaint_.result, complaint_.message);
  }
  if (finalized_.load()) {
    refuse(ncclInvalidUsage, "the communicator has been finalized; it can only be destroyed");
  }
}

void Comm::require_usable() const {
  require_joined();
  if (suspended_.load()) {
    refuse(ncclInvalidUsage, "the communicator is suspended; call ncclCommResume first");
  }
}

Complaint Comm::state() const {
  if (!concluded_.load()) {
    return {ncclInProgress, {}};
  }
  const std::lock_guard lock(mutex_);
  const Phase phase = phase_.load();
  if (phase == Phase::failed) {
    return complaint_;
  }
  if (phase == Phase::ready) {
    // First: what is being made of it may wait for a rank that has failed and never comes.
    if (Complaint complaint = failure(); complaint.result != ncclSuccess) {
      return complaint;
    }
  }
  return {is_changing() ? ncclInProgress : ncclSuccess, {}};
}

Complaint Comm::failure() const {
  // Who revoked it knows, and goes on to shrink or destroy it: NCCL says that it is well.
  if (revoked_.load()) {
    return {};
  }
  // What NCCL's own library says of a failure comes before what ours says of it.
  if (hand_over_) {
    if (Complaint complaint = hand_over_->complaint(); complaint.result != ncclSuccess) {
      return complaint;
    }
  }
  if (const auto error = data_->failure()) {
    return {result_of(error->code()), error->what()};
  }
  return {};
}

void Comm::revoke(const char* why) {
  revoked_.store(true);
  end_data(why);
}

void Comm::end_data(const char* why) {
  data_->revoke(why);
  if (hand_over_) {
    hand_over_->wake();
  }
}

// The other ranks hear of it by their operations and by ncclCommGetAsyncError(), where NCCL leaves
// them to wait.
void Comm::abort() {
  const std::lock_guard lock(mutex_);
  aborted_.store(true);  // one that still joins is told at its end
  if (phase_.load() != Phase::ready) {
    return;
  }
  end_data("ncclCommAbort");
  // What is being made of it waits there, and may do so for a rank that never comes. Otherwise the
  // other ranks keep it, to shrink without this one. Whatever begins after this look finds aborted_
  // set, for all of these are in one order.
  if (is_changing()) {
    control_->revoke("ncclCommAbort");
  }
}

void Comm::require_not_aborted() const {
  if (aborted_.load()) {
    refuse(ncclRemoteError, "ncclCommAbort has ended the communicator that it is made of");
  }
}

void Comm::finalize() {
  require_joined();
  if (finalized_.exchange(true)) {
    refuse(ncclInvalidArgument, "the communicator has been finalized before");
  }
  settle();
}

void Comm::close() {
  {
    std::unique_lock lock(mutex_);
    joined_.wait(lock, [this] { return phase_.load() != Phase::joining; });
  }
  settle();
}

void Comm::settle() {
  if (lane_) {
    lane_->settle();
  }
  if (hand_over_) {
    hand_over_->finalize();
  }
}

ncclRedOp_t Comm::add_scale(Scale scale, DType dtype) {
  if (hand_over_ && hand_over_->reduces()) {
    scale.real = hand_over_->make_op(scale, dtype);
  }
  const std::lock_guard lock(mutex_);
  const int number = next_op.fetch_add(1);
  made_.emplace(number, Made{scale, dtype});
  return static_cast<ncclRedOp_t>(number);
}

Scale Comm::remove_scale(ncclRedOp_t op) {
  std::unique_lock lock(mutex_);
  const auto removed = made_.extract(static_cast<int>(op));
  lock.unlock();
  if (removed.empty()) {
    refuse(ncclInvalidArgument, "op " + std::to_string(static_cast<int>(op)) +
                                    " was not made for this communicator, or has been destroyed");
  }
  return removed.mapped().scale;
}

void Comm::end_scale(const Scale& scale) {
  if (hand_over_ && hand_over_->reduces()) {
    hand_over_->destroy_op(scale.real);
  }
}

Scale Comm::scale_of(ncclRedOp_t op, DType dtype) const {
  const std::lock_guard lock(mutex_);
  const auto found = made_.find(static_cast<int>(op));
  if (found == made_.end()) {
    refuse(ncclInvalidArgument,
           "op " + std::to_string(static_cast<int>(op)) +
               " is none of ncclRedOp_t, nor one made for this communicator and not destroyed");
  }
  if (found->second.dtype != dtype) {
    refuse(ncclInvalidArgument, "op " + std::to_string(static_cast<int>(op)) + " was made for " +
                                    sprat::name(found->second.dtype) + ", the operation has " +
                                    sprat::name(dtype));
  }
  return found->second.scale;
}

void* Comm::add_range(Range range) {
  void* const handle = next_handle();
  const std::lock_guard lock(mutex_);
  ranges_.emplace(handle, range);
  return handle;
}

Range Comm::range_of(const void* handle, RangeKind kind, const char* what) const {
  const std::lock_guard lock(mutex_);
  return range_at(handle, kind, what);
}

void Comm::remove_range(const void* handle, RangeKind kind, const char* what) {
  const std::lock_guard lock(mutex_);
  static_cast<void>(range_at(handle, kind, what));
  ranges_.erase(handle);
}

/// With the mutex held.
const Range& Comm::range_at(const void* handle, RangeKind kind, const char* what) const {
  const auto found = ranges_.find(handle);
  if (found == ranges_.end() || found->second.kind != kind) {
    refuse(ncclInvalidArgument,
           std::string(what) + " was not registered with this communicator, or is no more");
  }
  return found->second;
}

ncclComm_t add_comm(std::shared_ptr<Comm> comm) {
  static const int at_exit = std::atexit(leave_all);
  static_cast<void>(at_exit);
  const auto handle = static_cast<ncclComm_t>(next_handle());
  const std::lock_guard lock(comms().mutex);
  comms().table.emplace(handle, std::move(comm));
  return handle;
}

std::shared_ptr<Comm> comm_of(ncclComm_t handle) {
  const std::lock_guard lock(comms().mutex);
  const auto found = comms().table.find(handle);
  if (found == comms().table.end()) {
    refuse_handle(handle);
  }
  if (!found->second->here()) {
    refuse(ncclInvalidUsage,
           "the communicator is of the process that has forked this one; make another here");
  }
  return found->second;
}

std::shared_ptr<Comm> take_comm(ncclComm_t handle) {
  static_cast<void>(comm_of(handle));
  const std::lock_guard lock(comms().mutex);
  const auto node = comms().table.extract(handle);
  if (node.empty()) {
    refuse_handle(handle);  // another thread has been faster
  }
  return node.mapped();
}

void forget_comm(ncclComm_t handle) noexcept {
  std::shared_ptr<Comm> forgotten;  // ends outside of the lock
  const std::lock_guard lock(comms().mutex);
  if (const auto node = comms().table.extract(handle); !node.empty()) {
    forgotten = node.mapped();
  }
}

}  // namespace sprat::nccl
