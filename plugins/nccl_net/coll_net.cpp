#include "plugins/nccl_net/coll_net.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "comm/base/check.hpp"
#include "plugins/nccl_net/guard.hpp"
#include "plugins/nccl_net/handle_store.hpp"
#include "plugins/nccl_net/net.hpp"
#include "sprat/communicator.hpp"

namespace sprat::nccl_net::coll_net {
namespace {

/// By ncclDataType_t.
constexpr std::array data_types = {DType::i8,  DType::u8,   DType::i32,    DType::u32,
                                   DType::i64, DType::u64,  DType::f16,    DType::f32,
                                   DType::f64, DType::bf16, DType::f8e4m3, DType::f8e5m2};
/// By ncclRedOp_t: averages are NCCL's own.
constexpr std::array operations = {ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min};
/// Sums of offsets below it do not wrap.
constexpr std::size_t most_bytes_of_a_window = std::numeric_limits<std::size_t>::max() / 2;

template <class Table>
bool has(const Table& table, int at) {
  return at >= 0 && static_cast<std::size_t>(at) < table.size();
}

struct CollComm;

struct CollRequest {
  CollComm* comm = nullptr;
  std::optional<Work> work;  ///< While it is under way.
  std::size_t bytes = 0;
};

struct CollComm {
  explicit CollComm(Communicator joined) : world(std::move(joined)) {
    for (CollRequest& request : requests) {
      request.comm = this;
    }
  }
  std::mutex mutex;  ///< Guards the requests.
  Communicator world;
  std::array<CollRequest, most_requests> requests;
};

/// This process's rank of a job of its own, for each communicator of NCCL's.
Config config_of(int ranks, int rank) {
  Config config = Config::from_environment();
  config.rank = rank;
  config.size = ranks;
  // What the network goes through, so that a host needs nothing else than for that.
  config.provider = config.provider.empty() ? "sockets" : config.provider;
  return config;
}

void require_offered(int data_type, int operation) {
  require(has(data_types, data_type) && has(operations, operation), "operation ", operation,
          " on type ", data_type, " was not offered");
}

/// Begins what `start` makes in a request that is free; none: too many are under way.
void begin(void* comm, std::size_t bytes, void** request,
           const std::function<Work(Communicator&)>& start) {
  auto& all = *static_cast<CollComm*>(comm);
  const std::lock_guard lock(all.mutex);
  for (CollRequest& one : all.requests) {
    if (!one.work) {
      one.bytes = bytes;
      one.work = start(all.world);
      *request = &one;
      return;
    }
  }
}

/// Elements of each rank's block that lie in the window.
std::vector<std::size_t> counts_in(const Window& window, std::size_t ranks, std::size_t element) {
  const std::size_t end = window.offset + window.bytes;
  require(window.bytes_a_rank <= most_bytes_of_a_window / ranks && window.offset <= end &&
              end <= window.bytes_a_rank * ranks,
          "a window of ", window.bytes, " bytes at ", window.offset, " is not within ", ranks,
          " blocks of ", window.bytes_a_rank);
  std::vector<std::size_t> counts;
  for (std::size_t begin = 0; counts.size() < ranks; begin += window.bytes_a_rank) {
    const std::size_t from = std::max(begin, window.offset);
    const std::size_t to = std::min(begin + window.bytes_a_rank, end);
    const std::size_t bytes = from < to ? to - from : 0;
    require(bytes % element == 0, bytes, " bytes of a block are in a window of elements of ",
            element);
    counts.push_back(bytes / element);
  }
  return counts;
}

}  // namespace

Result connect(void** handles, int ranks, int rank, void* listener, void** comm) {
  *comm = nullptr;
  return guard("collective connect", [&] {
    require(ranks >= 1 && rank >= 0 && rank < ranks, "rank ", rank, " of ", ranks);
    const Config config = config_of(ranks, rank);
    std::unique_ptr<HandleStore> store;
    if (rank == 0) {
      store =
          std::make_unique<HandleStore>(net::listener_at(listener), ranks - 1, config.join_timeout);
    } else {
      store = std::make_unique<HandleStore>(net::first_device(), net::invitation_in(handles[0]));
    }
    auto made = std::make_unique<CollComm>(Communicator::join(config, *store));
    *comm = made.release();
    return Result::success;
  });
}

Result reduce_support(int data_type, int operation, int* supported) {
  *supported = has(data_types, data_type) && has(operations, operation) ? 1 : 0;
  return Result::success;
}

Result iallreduce(void* comm, const void* source, void* target, std::size_t count, int data_type,
                  int operation, void** request) {
  *request = nullptr;
  return guard("iallreduce", [&] {
    require_offered(data_type, operation);
    const DType type = data_types[static_cast<std::size_t>(data_type)];
    const ReduceOp op = operations[static_cast<std::size_t>(operation)];
    begin(comm, count * size_of(type), request, [&](Communicator& world) {
      const Elements out{target, count, type};
      return source == target ? world.all_reduce(out, op)
                              : world.all_reduce(ConstElements{source, count, type}, out, op);
    });
    return Result::success;
  });
}

Result iallgather(void* comm, const void* source, void* target, const Window& window,
                  void** request) {
  *request = nullptr;
  return guard("iallgather", [&] {
    begin(comm, window.bytes, request, [&](Communicator& world) {
      const auto counts = counts_in(window, static_cast<std::size_t>(world.size()), 1);
      const std::size_t own = counts[static_cast<std::size_t>(world.rank())];
      return world.all_gatherv({source, own, DType::u8}, {target, window.bytes, DType::u8}, counts);
    });
    return Result::success;
  });
}

Result ireducescatter(void* comm, const void* source, void* target, const Window& window,
                      int data_type, int operation, void** request) {
  *request = nullptr;
  return guard("ireducescatter", [&] {
    require_offered(data_type, operation);
    const DType type = data_types[static_cast<std::size_t>(data_type)];
    const ReduceOp op = operations[static_cast<std::size_t>(operation)];
    begin(comm, window.bytes, request, [&](Communicator& world) {
      const auto counts = counts_in(window, static_cast<std::size_t>(world.size()), size_of(type));
      const std::size_t own = counts[static_cast<std::size_t>(world.rank())];
      return world.reduce_scatterv({source, window.bytes / size_of(type), type},
                                   {target, own, type}, counts, op);
    });
    return Result::success;
  });
}

Result test(void* request, int* done, int* bytes) {
  *done = 0;
  return guard("test", [&] {
    auto& one = *static_cast<CollRequest*>(request);
    const std::lock_guard lock(one.comm->mutex);
    require(one.work.has_value(), "test() of a request that has been told to be done");
    if (one.work->test()) {
      one.work.reset();
      *done = 1;
      if (bytes != nullptr) {
        *bytes = static_cast<int>(one.bytes);
      }
    }
    return Result::success;
  });
}

/// NCCL closes after an abort, too. Then nobody may touch its memory any more, so what is under way
/// ends first, on all ranks.
Result close(void* comm) {
  return guard("closeColl", [&] {
    const std::unique_ptr<CollComm> all(static_cast<CollComm*>(comm));
    bool under_way = false;
    for (const CollRequest& one : all->requests) {
      under_way = under_way || (one.work && !one.work->done());
    }
    if (under_way) {
      all->world.abort("NCCL has closed a communicator with calls under way");
    }
    for (CollRequest& one : all->requests) {
      try {
        if (one.work) {
          one.work->wait();
        }
      } catch (const Error&) {  // it has been aborted, and that is what was wanted
      }
    }
    return Result::success;
  });
}

}  // namespace sprat::nccl_net::coll_net
