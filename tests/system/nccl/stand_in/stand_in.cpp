// The stand-in for NCCL's own library: its operations add, in rank order, what the ranks' pointers
// point to, in host functions of the streams. It makes no claim of speed. It answers twice that a
// call is in progress before it says that it has succeeded, as communicators that do not block do.
#include "tests/system/nccl/stand_in/stand_in.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plugins/nccl_abi/abi.h"

#define REAL_NCCL_API extern "C" __attribute__((visibility("default")))

extern "C" {
int cuLaunchHostFunc(void* stream, void (*function)(void*), void* argument);
int cudaGetDevice(int* device);
int cudaSetDevice(int device);
}

namespace {

constexpr int version = 22909;
constexpr std::size_t most_ranks = 8;
using Bytes = std::vector<std::byte>;

/// What a rank brings to an operation.
struct Part {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  double factor = 1;
};

struct Meeting {
  std::array<Part, most_ranks> parts{};
  std::size_t here = 0, computed = 0;
};

/// The ranks of one communicator, which share it.
struct Job {
  std::mutex mutex;  ///< Guards all below.
  std::condition_variable changed;
  std::size_t size = 0, joined = 0, refused = 0;
  std::array<bool, most_ranks> aborted{};   ///< Each rank ends by itself, as NCCL's do.
  std::map<std::size_t, Meeting> meetings;  ///< By the number of the operation.
  std::map<std::pair<int, int>, std::deque<Bytes>> messages;
};

struct Factor {
  double value = 1;
  const void* on_device = nullptr;
  ncclDataType_t type = ncclFloat32;
};

}  // namespace

struct ncclComm {
  std::shared_ptr<Job> job;
  int rank = 0, device = 0;
  std::size_t operations = 0;  ///< Collectives so far.
  int in_progress = 2;         ///< How many questions are still answered so.
  ncclResult_t failed = ncclSuccess;
  std::map<int, Factor> factors;
};

namespace {

struct State {
  std::mutex mutex;  ///< Guards all below, and each communicator's fields.
  std::map<std::string, int> calls;
  std::map<std::string, std::shared_ptr<Job>> jobs;
  std::set<ncclComm*> communicators;
  std::array<int, most_ranks> devices{};
  int refused_rank = -1, ids = 0, ops = ncclNumOps;
  bool holds_answers = false;
  int held = 0;
  std::condition_variable answers;
};
State& state() {
  static State& all = *new State;
  return all;
}

thread_local int group_depth = 0;
thread_local std::vector<std::function<ncclResult_t()>> grouped;

void count(const char* name) {
  const std::lock_guard lock(state().mutex);
  ++state().calls[name];
}

std::size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt64:
    case ncclFloat64:
      return 8;
    case ncclInt32:
    case ncclFloat32:
      return 4;
    case ncclInt8:
      return 1;
    default:
      return 0;  // none that the tests use
  }
}

double get(const std::byte* from, ncclDataType_t type) {
  const auto load = [from](auto value) {
    std::memcpy(&value, from, sizeof(value));
    return static_cast<double>(value);
  };
  switch (type) {
    case ncclInt64:
      return load(std::int64_t{});
    case ncclFloat64:
      return load(double{});
    case ncclInt32:
      return load(std::int32_t{});
    case ncclInt8:
      return load(std::int8_t{});
    default:
      return load(float{});
  }
}

void put(std::byte* to, ncclDataType_t type, double value) {
  const auto store = [to](auto number) { std::memcpy(to, &number, sizeof(number)); };
  switch (type) {
    case ncclInt64:
      return store(static_cast<std::int64_t>(value));
    case ncclFloat64:
      return store(value);
    case ncclInt32:
      return store(static_cast<std::int32_t>(value));
    case ncclInt8:
      return store(static_cast<std::int8_t>(value));
    default:
      return store(static_cast<float>(value));
  }
}

double combine(ncclRedOp_t op, double a, double b) {
  switch (op) {
    case ncclProd:
      return a * b;
    case ncclMax:
      return std::max(a, b);
    case ncclMin:
      return std::min(a, b);
    default:
      return a + b;
  }
}

struct Queued {
  std::shared_ptr<Job> job;
  std::size_t number = 0;
  int rank = 0, device = 0;
  Part part;
  Factor factor;
  /// Of all parts: what this rank's output becomes.
  std::function<Bytes(const Meeting&)> result;
  // Of a message:
  int to = -1, from = -1;
  std::size_t bytes = 0;
};

/// Holds the stream until all ranks' streams have come, as kernels do that wait for each other.
void meet(Queued& own) {
  Job& job = *own.job;
  std::unique_lock lock(job.mutex);
  Meeting& meeting = job.meetings[own.number];
  meeting.parts[static_cast<std::size_t>(own.rank)] = own.part;
  ++meeting.here;
  const bool& aborted = job.aborted[static_cast<std::size_t>(own.rank)];
  job.changed.notify_all();
  job.changed.wait(lock, [&] { return aborted || meeting.here == job.size; });
  if (aborted) {
    return;
  }
  const Bytes result = own.result(meeting);
  // Nobody writes while others still read.
  ++meeting.computed;
  job.changed.notify_all();
  job.changed.wait(lock, [&] { return aborted || meeting.computed == job.size; });
  if (!aborted && own.part.out != nullptr) {
    std::copy(result.begin(), result.end(), own.part.out);
  }
}

void carry(Queued& own) {
  Job& job = *own.job;
  std::unique_lock lock(job.mutex);
  if (own.to >= 0) {
    job.messages[{own.rank, own.to}].emplace_back(own.part.in, own.part.in + own.bytes);
    job.changed.notify_all();
    return;
  }
  const bool& aborted = job.aborted[static_cast<std::size_t>(own.rank)];
  auto& line = job.messages[{own.from, own.rank}];
  job.changed.wait(lock, [&] { return aborted || !line.empty(); });
  if (!aborted) {
    std::copy(line.front().begin(), line.front().end(), own.part.out);
    line.pop_front();
  }
}

void run(void* argument) {
  const std::unique_ptr<Queued> own(static_cast<Queued*>(argument));
  if (own->factor.on_device != nullptr) {
    own->part.factor = get(static_cast<const std::byte*>(own->factor.on_device), own->factor.type);
  }
  own->to >= 0 || own->from >= 0 ? carry(*own) : meet(*own);
}

/// On the communicator's device, whichever the calling thread has.
ncclResult_t launch(const Queued& own, cudaStream_t stream) {
  int before = 0;
  cudaGetDevice(&before);
  cudaSetDevice(own.device);
  auto argument = std::make_unique<Queued>(own);
  const int launched = cuLaunchHostFunc(stream, run, argument.get());
  cudaSetDevice(before);
  if (launched != 0) {
    return ncclUnhandledCudaError;
  }
  argument.release();  // run() has it
  return ncclInProgress;
}

ncclResult_t queue(Queued own, cudaStream_t stream) {
  if (group_depth == 0) {
    return launch(own, stream);
  }
  grouped.push_back([own = std::move(own), stream] { return launch(own, stream); });
  return ncclInProgress;
}

/// An operation of `comm`, of which a group must not be in progress.
Queued begin(ncclComm* comm, const void* in, void* out) {
  const std::lock_guard lock(state().mutex);
  Queued own;
  own.job = comm->job;
  own.rank = comm->rank;
  own.device = comm->device;
  own.part = {static_cast<const std::byte*>(in), static_cast<std::byte*>(out)};
  comm->in_progress = 2;
  return own;
}

Queued collective(ncclComm* comm, const void* in, void* out) {
  Queued own = begin(comm, in, out);
  const std::lock_guard lock(state().mutex);
  own.number = comm->operations++;
  return own;
}

/// Elements [first, first + count) of all parts, added up.
std::function<Bytes(const Meeting&)> reduced(std::size_t first, std::size_t count,
                                             ncclDataType_t type, ncclRedOp_t op,
                                             std::size_t size) {
  return [=](const Meeting& meeting) {
    const std::size_t bytes = bytes_of(type);
    Bytes result(count * bytes);
    for (std::size_t at = 0; at < count; ++at) {
      const auto one = [&](std::size_t rank) {
        return meeting.parts[rank].factor *
               get(meeting.parts[rank].in + (first + at) * bytes, type);
      };
      double value = one(0);
      for (std::size_t rank = 1; rank < size; ++rank) {
        value = combine(op, value, one(rank));
      }
      put(result.data() + at * bytes, type,
          op == ncclAvg ? value / static_cast<double>(size) : value);
    }
    return result;
  };
}

ncclResult_t reduce(ncclComm* comm, const void* in, void* out, std::size_t first, std::size_t count,
                    ncclDataType_t type, ncclRedOp_t op, cudaStream_t stream) {
  Queued own = collective(comm, in, out);
  {
    const std::lock_guard lock(state().mutex);
    const auto made = comm->factors.find(static_cast<int>(op));
    if (op >= ncclNumOps && made == comm->factors.end()) {
      return ncclInvalidArgument;
    }
    if (made != comm->factors.end()) {
      own.part.factor = made->second.value;
      own.factor = made->second;
    }
  }
  own.result = reduced(first, count, type, op, own.job->size);
  return queue(std::move(own), stream);
}

/// Pieces of `bytes`, one a rank: that at `offset(rank)` of each, or the root's alone.
std::function<Bytes(const Meeting&)> copied(std::size_t bytes, std::size_t from_rank,
                                            std::size_t ranks, std::size_t offset) {
  return [=](const Meeting& meeting) {
    Bytes result;
    for (std::size_t rank = from_rank; rank < from_rank + ranks; ++rank) {
      const std::byte* const from = meeting.parts[rank].in + offset;
      result.insert(result.end(), from, from + bytes);
    }
    return result;
  };
}

void end(ncclComm* comm, bool abort) {
  {
    const std::lock_guard lock(comm->job->mutex);
    comm->job->aborted[static_cast<std::size_t>(comm->rank)] |= abort;
    comm->job->changed.notify_all();
  }
  const std::lock_guard lock(state().mutex);
  state().communicators.erase(comm);
  delete comm;
}

}  // namespace

REAL_NCCL_API int real_nccl_calls(const char* name) {
  const std::lock_guard lock(state().mutex);
  return state().calls[name];
}
REAL_NCCL_API int real_nccl_communicators(void) {
  const std::lock_guard lock(state().mutex);
  return static_cast<int>(state().communicators.size());
}
REAL_NCCL_API int real_nccl_device_of(int rank) {
  const std::lock_guard lock(state().mutex);
  return state().devices[static_cast<std::size_t>(rank)];
}
REAL_NCCL_API void real_nccl_refuse_rank(int rank) {
  const std::lock_guard lock(state().mutex);
  state().refused_rank = rank;
}
REAL_NCCL_API void real_nccl_fail_rank(int rank, int result) {
  const std::lock_guard lock(state().mutex);
  for (ncclComm* const comm : state().communicators) {
    if (comm->rank == rank) {
      comm->failed = static_cast<ncclResult_t>(result);
    }
  }
}

REAL_NCCL_API void real_nccl_hold_answers(int hold) {
  const std::lock_guard lock(state().mutex);
  state().holds_answers = hold != 0;
  state().answers.notify_all();
}
REAL_NCCL_API int real_nccl_answers_held(void) {
  const std::lock_guard lock(state().mutex);
  return state().held;
}

REAL_NCCL_API ncclResult_t pncclGetVersion(int* out) {
  *out = version;
  return ncclSuccess;
}
// Weak, and called by its name, as the real library has it: a preloaded one must not answer.
extern "C" __attribute__((visibility("default"), weak, alias("pncclGetVersion"))) ncclResult_t
ncclGetVersion(int* out);

REAL_NCCL_API const char* pncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : "the stand-in's error";
}
REAL_NCCL_API const char* pncclGetLastError(ncclComm_t) { return "its last error"; }

REAL_NCCL_API ncclResult_t pncclGetUniqueId(ncclUniqueId* id) {
  count("GetUniqueId");
  const std::lock_guard lock(state().mutex);
  *id = {};
  std::memcpy(id->internal, "stand-in", 8);
  std::memcpy(id->internal + 8, &++state().ids, sizeof(int));
  return ncclSuccess;
}

REAL_NCCL_API ncclResult_t pncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id,
                                                   int rank, ncclConfig_t* config) {
  count("CommInitRankConfig");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  int own = 0;
  if (ncclGetVersion(&own) != ncclSuccess || own != version) {
    return ncclInternalError;  // somebody else has answered
  }
#endif
  if (config->blocking != 0 || config->magic != SPRAT_NCCL_MAGIC) {
    return ncclInvalidArgument;  // the stand-in knows no others
  }
  const std::lock_guard lock(state().mutex);
  if (rank == state().refused_rank) {
    return ncclSystemError;
  }
  auto& job = state().jobs[std::string(id.internal, sizeof(id.internal))];
  job = job ? job : std::make_shared<Job>();
  *comm = new ncclComm;
  (*comm)->job = job;
  (*comm)->rank = rank;
  cudaGetDevice(&(*comm)->device);
  state().devices[static_cast<std::size_t>(rank)] = (*comm)->device;
  state().communicators.insert(*comm);
  const std::lock_guard of_job(job->mutex);
  job->size = static_cast<std::size_t>(ranks);
  ++job->joined;
  return ncclInProgress;
}

REAL_NCCL_API ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  std::unique_lock lock(state().mutex);
  ++state().held;
  state().answers.wait(lock, [] { return !state().holds_answers; });
  --state().held;
  const std::lock_guard of_job(comm->job->mutex);
  *result = comm->failed;
  if (*result == ncclSuccess && (comm->job->joined < comm->job->size || comm->in_progress > 0)) {
    comm->in_progress -= comm->in_progress > 0 ? 1 : 0;
    *result = ncclInProgress;
  }
  return ncclSuccess;
}

REAL_NCCL_API ncclResult_t pncclCommFinalize(ncclComm_t comm) {
  count("CommFinalize");
  const std::lock_guard lock(state().mutex);
  comm->in_progress = 2;
  return ncclInProgress;
}
REAL_NCCL_API ncclResult_t pncclCommDestroy(ncclComm_t comm) {
  count("CommDestroy");
  end(comm, false);
  return ncclSuccess;
}
REAL_NCCL_API ncclResult_t pncclCommAbort(ncclComm_t comm) {
  count("CommAbort");
  end(comm, true);
  return ncclSuccess;
}

REAL_NCCL_API ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar,
                                                     ncclDataType_t type,
                                                     ncclScalarResidence_t where, ncclComm_t comm) {
  count("RedOpCreatePreMulSum");
  const std::lock_guard lock(state().mutex);
  const bool on_device = where == ncclScalarDevice;
  const double value = on_device ? 1 : get(static_cast<const std::byte*>(scalar), type);
  *op = static_cast<ncclRedOp_t>(state().ops++);
  comm->factors[static_cast<int>(*op)] = {value, on_device ? scalar : nullptr, type};
  return ncclSuccess;
}
REAL_NCCL_API ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  count("RedOpDestroy");
  const std::lock_guard lock(state().mutex);
  return comm->factors.erase(static_cast<int>(op)) == 1 ? ncclSuccess : ncclInvalidArgument;
}

REAL_NCCL_API ncclResult_t pncclGroupStart(void) {
  ++group_depth;
  return ncclSuccess;
}
REAL_NCCL_API ncclResult_t pncclGroupEnd(void) {
  ncclResult_t result = ncclInProgress;
  if (--group_depth == 0) {
    for (const auto& one : std::exchange(grouped, {})) {
      const ncclResult_t launched = one();
      result = launched == ncclInProgress ? result : launched;
    }
  }
  return result;
}

REAL_NCCL_API ncclResult_t pncclAllReduce(const void* in, void* out, size_t elements,
                                          ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                          cudaStream_t stream) {
  count("AllReduce");
  return reduce(comm, in, out, 0, elements, type, op, stream);
}
REAL_NCCL_API ncclResult_t pncclReduce(const void* in, void* out, size_t elements,
                                       ncclDataType_t type, ncclRedOp_t op, int root,
                                       ncclComm_t comm, cudaStream_t stream) {
  count("Reduce");
  return reduce(comm, in, comm->rank == root ? out : nullptr, 0, elements, type, op, stream);
}
REAL_NCCL_API ncclResult_t pncclReduceScatter(const void* in, void* out, size_t elements,
                                              ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                              cudaStream_t stream) {
  count("ReduceScatter");
  return reduce(comm, in, out, static_cast<std::size_t>(comm->rank) * elements, elements, type, op,
                stream);
}
REAL_NCCL_API ncclResult_t pncclBroadcast(const void* in, void* out, size_t elements,
                                          ncclDataType_t type, int root, ncclComm_t comm,
                                          cudaStream_t stream) {
  count("Broadcast");
  Queued own = collective(comm, in, out);
  own.result = copied(elements * bytes_of(type), static_cast<std::size_t>(root), 1, 0);
  return queue(std::move(own), stream);
}
REAL_NCCL_API ncclResult_t pncclAllGather(const void* in, void* out, size_t elements,
                                          ncclDataType_t type, ncclComm_t comm,
                                          cudaStream_t stream) {
  count("AllGather");
  Queued own = collective(comm, in, out);
  own.result = copied(elements * bytes_of(type), 0, own.job->size, 0);
  return queue(std::move(own), stream);
}
REAL_NCCL_API ncclResult_t pncclGather(const void* in, void* out, size_t elements,
                                       ncclDataType_t type, int root, ncclComm_t comm,
                                       cudaStream_t stream) {
  count("Gather");
  Queued own = collective(comm, in, comm->rank == root ? out : nullptr);
  own.result = copied(elements * bytes_of(type), 0, own.job->size, 0);
  return queue(std::move(own), stream);
}
REAL_NCCL_API ncclResult_t pncclScatter(const void* in, void* out, size_t elements,
                                        ncclDataType_t type, int root, ncclComm_t comm,
                                        cudaStream_t stream) {
  count("Scatter");
  Queued own = collective(comm, in, out);
  const std::size_t bytes = elements * bytes_of(type);
  own.result = copied(bytes, static_cast<std::size_t>(root), 1,
                      static_cast<std::size_t>(comm->rank) * bytes);
  return queue(std::move(own), stream);
}
REAL_NCCL_API ncclResult_t pncclAlltoAll(const void* in, void* out, size_t elements,
                                         ncclDataType_t type, ncclComm_t comm,
                                         cudaStream_t stream) {
  count("AlltoAll");
  Queued own = collective(comm, in, out);
  const std::size_t bytes = elements * bytes_of(type);
  own.result = copied(bytes, 0, own.job->size, static_cast<std::size_t>(comm->rank) * bytes);
  return queue(std::move(own), stream);
}
REAL_NCCL_API ncclResult_t pncclSend(const void* in, size_t elements, ncclDataType_t type, int peer,
                                     ncclComm_t comm, cudaStream_t stream) {
  count("Send");
  Queued own = begin(comm, in, nullptr);
  own.to = peer;
  own.bytes = elements * bytes_of(type);
  return queue(std::move(own), stream);
}
REAL_NCCL_API ncclResult_t pncclRecv(void* out, size_t elements, ncclDataType_t type, int peer,
                                     ncclComm_t comm, cudaStream_t stream) {
  count("Recv");
  Queued own = begin(comm, nullptr, out);
  own.from = peer;
  own.bytes = elements * bytes_of(type);
  return queue(std::move(own), stream);
}
