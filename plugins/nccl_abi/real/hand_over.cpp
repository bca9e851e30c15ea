// The life of a communicator of NCCL's own library beside ours, and what is enqueued there.
#include "plugins/nccl_abi/real/hand_over.hpp"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "plugins/nccl_abi/devices.hpp"
#include "sprat/config.hpp"

namespace sprat::nccl::real {
namespace {

using Clock = std::chrono::steady_clock;

// NCCL tells of the end of what it does by being asked alone, so whoever waits sleeps meanwhile:
// shorter than a call of its takes to connect ranks, and long enough to leave the processor to it.
constexpr std::chrono::microseconds between_questions{100};
// A lost rank is noticed after seconds, so this adds nothing that is seen.
constexpr std::chrono::milliseconds between_looks{20};

std::string said_by(const Library& library, ncclResult_t result, ncclComm_t comm,
                    const char* call) {
  const char* const more = library.GetLastError(comm);
  std::string text =
      std::string("NCCL's own library: ") + call + ": " + library.GetErrorString(result);
  if (more != nullptr && *more != '\0') {
    text += std::string(" (") + more + ")";
  }
  return text;
}

bool has_begun(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

void check(const Library& library, ncclResult_t result, ncclComm_t comm, const char* call) {
  if (!has_begun(result)) {
    refuse(result, said_by(library, result, comm, call));
  }
}

/// As a program of NCCL 2.28 has it; what older and newer libraries have besides is at its default.
ncclConfig_t not_blocking() {
  ncclConfig_t config{};
  config.size = offsetof(ncclConfig_t, graphUsageMode);
  config.magic = SPRAT_NCCL_MAGIC;
  config.version = 22809;
  config.blocking = 0;
  for (int* const number :
       {&config.cgaClusterSize, &config.minCTAs, &config.maxCTAs, &config.splitShare,
        &config.trafficClass, &config.collnetEnable, &config.CTAPolicy, &config.shrinkShare,
        &config.nvlsCTAs, &config.nChannelsPerNetPeer, &config.nvlinkCentricSched}) {
    *number = SPRAT_NCCL_UNDEFINED;
  }
  return config;
}

}  // namespace

HandOver::HandOver(const Library& library, const ncclUniqueId& id, const Place& place,
                   Communicator& ours, Communicator& trial, std::chrono::milliseconds patience)
    : library_(library), place_(place), ours_(ours) {
  {
    // NCCL takes the calling thread's device, and this may be any thread.
    const CurrentDevice current(place.device);
    ncclConfig_t config = not_blocking();
    const ncclResult_t result =
        library.CommInitRankConfig(&comm_, place.size, id, place.rank, &config);
    check(library, result, comm_, "ncclCommInitRankConfig");
  }
  try {
    await(trial, patience, "joining");
    watcher_ = std::thread([this] { watch(); });
  } catch (...) {
    abort();
    throw;
  }
}

HandOver::~HandOver() {
  leave();
  if (finalized_ && comm_ != nullptr) {
    library_.CommDestroy(comm_);
  } else {
    abort();
  }
}

void HandOver::open(Kinds kinds) { kinds_ = kinds; }

bool HandOver::takes(const Operation& operation, Device& device) const {
  if (!kinds_.has(operation.kind)) {
    return false;
  }
  const Extent used = extent(operation, place_.rank, place_.size);
  const auto is_here = [&](const void* memory) {
    const DeviceMemory where = device.memory_of(memory);
    return where.kind == MemoryKind::device && where.index == place_.device;
  };
  return (used.in == 0 || is_here(operation.in)) && (used.out == 0 || is_here(operation.out));
}

ncclRedOp_t HandOver::make_op(const Scale& scale, DType dtype) {
  const std::lock_guard lock(mutex_);
  require_open();
  // NCCL reads a number of the host at once, and one of a device when an operation runs.
  const bool on_device = scale.on_device != nullptr;
  const void* const number = on_device ? scale.on_device : scale.number.data();
  ncclRedOp_t op = ncclSum;
  check(
      library_,
      library_.RedOpCreatePreMulSum(&op, const_cast<void*>(number), number_of(dtype),
                                    on_device ? ncclScalarDevice : ncclScalarHostImmediate, comm_),
      comm_, "ncclRedOpCreatePreMulSum");
  return op;
}

void HandOver::destroy_op(ncclRedOp_t op) {
  const std::lock_guard lock(mutex_);
  if (comm_ != nullptr) {  // its ops have ended with it
    check(library_, library_.RedOpDestroy(op, comm_), comm_, "ncclRedOpDestroy");
  }
}

Complaint HandOver::complaint() {
  const std::lock_guard lock(mutex_);
  ask();
  return complaint_;
}

void HandOver::wake() {
  const std::lock_guard lock(mutex_);
  look_ = true;
  changed_.notify_all();
}

void HandOver::leave() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  if (watcher_.joinable()) {
    watcher_.join();
  }
}

void HandOver::finalize() {
  try {
    {
      const std::lock_guard lock(mutex_);
      if (finalized_ || comm_ == nullptr) {
        return;
      }
      check(library_, library_.CommFinalize(comm_), comm_, "ncclCommFinalize");
    }
    await(ours_, Config::from_environment().timeout, "what is under way to end");
    const std::lock_guard lock(mutex_);
    finalized_ = true;
  } catch (const Error& error) {
    ours_.revoke(error.what());  // what failed is over, and is told by the communicator's state
  }
}

/// With the mutex held: how the communicator is, and keeps what it has failed by.
ncclResult_t HandOver::ask() {
  if (comm_ == nullptr || complaint_.result != ncclSuccess) {
    return complaint_.result;
  }
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = library_.CommGetAsyncError(comm_, &state);
  state = asked == ncclSuccess ? state : asked;
  if (!has_begun(state)) {
    complaint_ = {state, said_by(library_, state, comm_, "ncclCommGetAsyncError")};
    look_ = true;  // so that the watcher tells the others
    changed_.notify_all();
  }
  return state;
}

/// With the mutex held.
void HandOver::require_open() const {
  if (complaint_.result != ncclSuccess) {
    throw Refusal(complaint_.result, complaint_.message);
  }
  if (comm_ == nullptr) {
    if (const auto failure = ours_.failure()) {
      throw Refusal(result_of(failure->code()), failure->what());
    }
    refuse(ncclInvalidUsage, "the communicator has ended");
  }
}

void HandOver::await(Communicator& beside, std::chrono::milliseconds patience, const char* what) {
  const auto deadline = Clock::now() + patience;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      require_open();
      const ncclResult_t state = ask();
      require_open();
      if (state == ncclSuccess) {
        return;
      }
    }
    if (const auto failure = beside.failure()) {
      throw Refusal(result_of(failure->code()), failure->what());
    }
    if (Clock::now() > deadline) {
      const std::string why = std::string("NCCL's own library: waited ") +
                              std::to_string(patience.count()) + " ms for " + what +
                              "; other ranks have not come";
      if (&beside == &ours_) {
        ours_.revoke(why);  // so that what stands in streams ends
      }
      throw Error(ErrorCode::timeout, why);
    }
    std::this_thread::sleep_for(between_questions);
  }
}

// What a program does that watches NCCL's communicators, whether it watches or not: streams that
// stand in NCCL's kernels go on by an abort alone.
void HandOver::watch() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    changed_.wait_for(lock, between_looks, [this] { return ending_ || look_; });
    look_ = false;
    ask();
    if (complaint_.result != ncclSuccess) {
      const std::string why = complaint_.message;
      lock.unlock();
      ours_.revoke(why);
      return abort();
    }
    if (ours_.failure()) {
      lock.unlock();
      return abort();
    }
  }
}

/// Nobody can be in the communicator any more when NCCL frees it.
void HandOver::abort() {
  ncclComm_t ended = nullptr;
  {
    const std::lock_guard lock(mutex_);
    ended = std::exchange(comm_, nullptr);
  }
  if (ended != nullptr) {
    library_.CommAbort(ended);
  }
}

ncclResult_t HandOver::start(const Operation& operation, cudaStream_t stream) const {
  const ncclDataType_t type = number_of(operation.dtype);
  const ncclRedOp_t op = operation.scale ? operation.scale->real : number_of(operation.op);
  const void* const in = operation.in;
  void* const out = operation.out;
  const std::size_t count = operation.count;
  switch (operation.kind) {
    case Kind::all_reduce:
      return library_.AllReduce(in, out, count, type, op, comm_, stream);
    case Kind::broadcast:
      return library_.Broadcast(in, out, count, type, operation.peer, comm_, stream);
    case Kind::reduce:
      return library_.Reduce(in, out, count, type, op, operation.peer, comm_, stream);
    case Kind::all_gather:
      return library_.AllGather(in, out, count, type, comm_, stream);
    case Kind::reduce_scatter:
      return library_.ReduceScatter(in, out, count, type, op, comm_, stream);
    case Kind::all_to_all:
      return library_.AlltoAll(in, out, count, type, comm_, stream);
    case Kind::gather:
      return library_.Gather(in, out, count, type, operation.peer, comm_, stream);
    case Kind::scatter:
      return library_.Scatter(in, out, count, type, operation.peer, comm_, stream);
    case Kind::send:
      return library_.Send(in, count, type, operation.peer, comm_, stream);
    case Kind::recv:
      return library_.Recv(out, count, type, operation.peer, comm_, stream);
  }
  return ncclInternalError;
}

void enqueue(std::span<const HandOver::Call> calls) {
  std::vector<HandOver*> members;
  for (const HandOver::Call& call : calls) {
    if (std::ranges::find(members, call.to) == members.end()) {
      members.push_back(call.to);
    }
  }
  // By address, as every thread takes them; so two groups of the same communicators do not stop
  // each other.
  std::ranges::sort(members, std::less<>());
  const Library& library = members.front()->library_;
  {
    // None is aborted by another thread while it is in the group.
    std::vector<std::unique_lock<std::mutex>> locks;
    for (HandOver* const member : members) {
      locks.emplace_back(member->mutex_);
      member->require_open();
    }
    check(library, library.GroupStart(), nullptr, "ncclGroupStart");
    ncclResult_t result = ncclSuccess;
    std::string complaint;
    for (const HandOver::Call& call : calls) {
      const ncclResult_t started = call.to->start(*call.operation, call.stream);
      if (!has_begun(started)) {
        result = started;
        complaint = said_by(library, started, call.to->comm_, name(call.operation->kind));
        break;
      }
    }
    // A group that has a wrong call does nothing, and must still be ended.
    const ncclResult_t ended = library.GroupEnd();
    if (result != ncclSuccess) {
      refuse(result, complaint);
    }
    check(library, ended, members.front()->comm_, "ncclGroupEnd");
  }
  for (HandOver* const member : members) {
    member->await(member->ours_, Config::from_environment().timeout,
                  "other ranks' first operations");
  }
}

}  // namespace sprat::nccl::real
