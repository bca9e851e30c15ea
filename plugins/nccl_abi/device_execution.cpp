// Lanes carry device memory through host memory: this gives them NCCL's operations.
#include "plugins/nccl_abi/device_execution.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "sprat/device.hpp"

namespace sprat::nccl {
namespace {

/// Sends and receives of one communicator in a group, in the order of the calls.
struct Exchange {
  std::vector<Operation> operations;
  std::vector<ConstDeviceBuffer> inputs;
  std::vector<DeviceBuffer> outputs;
  std::vector<cudaStream_t> streams;  ///< Each once.
};

/// Starts them all on stand-ins. One that is refused must not leave others writing to memory that
/// is given back: the communicator is over then, which ends them.
Work start_exchange(Communicator& communicator, const std::vector<Operation>& operations,
                    DeviceCall::Inputs in, DeviceCall::Outputs out) {
  std::vector<Work> works;
  std::size_t sends = 0, receives = 0;
  try {
    for (const Operation& operation : operations) {
      const bool gives = operation.kind == Kind::send;
      works.push_back(start(communicator, operation, gives ? in[sends++] : nullptr,
                            gives ? nullptr : out[receives++]));
    }
  } catch (const Error& error) {
    communicator.revoke(error.what());
    try {
      all_of(std::move(works)).wait();
    } catch (const Error&) {
      // Told by the first one.
    }
    throw;
  }
  return all_of(std::move(works));
}

/// What the other streams hold comes before, too.
void join_streams(Device& device, const std::vector<cudaStream_t>& streams) {
  for (std::size_t at = 1; at < streams.size(); ++at) {
    const DeviceEvent event = device.make_event();
    device.record(event, streams[at]);
    device.wait(streams.front(), event);
    device.destroy_event(event);  // once it is reached
  }
}

DeviceWork post_exchange(Comm& comm, Exchange made) {
  join_streams(comm.lane()->device(), made.streams);
  DeviceCall call;
  call.inputs = made.inputs;
  call.outputs = made.outputs;
  call.stream = made.streams.front();
  call.name = "a group of ncclSend and ncclRecv";
  call.start = [&communicator = comm.data(), operations = std::move(made.operations)](
                   DeviceCall::Inputs in, DeviceCall::Outputs out) {
    return start_exchange(communicator, operations, in, out);
  };
  return comm.lane()->run(std::move(call));
}

/// Of all sends and receives of a communicator.
Exchange exchange_of(const Comm& comm, std::span<const Queued> operations) {
  Exchange made;
  for (const Queued& queued : operations) {
    const Operation& operation = queued.operation;
    if (queued.comm.get() != &comm || !operation.between_two()) {
      continue;
    }
    const std::size_t bytes = operation.count * size_of(operation.dtype);
    if (operation.kind == Kind::send) {
      made.inputs.push_back({operation.in, bytes});
    } else {
      made.outputs.push_back({operation.out, bytes});
    }
    made.operations.push_back(operation);
    if (std::ranges::find(made.streams, queued.stream) == made.streams.end()) {
      made.streams.push_back(queued.stream);
    }
  }
  return made;
}

/// Each rank multiplies its stand-in, which is nobody else's yet. The number may come from the
/// device, behind the same stream. In place on the device, a reduce_scatter is in place on the host
/// for the first rank alone, whose block begins where all do; the others' outputs have stand-ins of
/// their own.
DeviceWork reduce_scaled(Comm& comm, const Operation& operation, cudaStream_t stream) {
  const Extent used = extent(operation, comm.rank(), comm.size());
  const std::size_t size = size_of(operation.dtype);
  std::vector<ConstDeviceBuffer> inputs = {{operation.in, used.in * size}};
  std::vector<DeviceBuffer> outputs;
  if (used.out > 0) {
    outputs.push_back({operation.out, used.out * size});
  }
  if (operation.scale->on_device != nullptr) {
    inputs.push_back({operation.scale->on_device, size});
  }
  DeviceCall call;
  call.inputs = inputs;
  call.outputs = outputs;
  call.stream = stream;
  call.name = name(operation.kind);
  call.start = [&communicator = comm.data(), operation, count = used.in](DeviceCall::Inputs in,
                                                                         DeviceCall::Outputs out) {
    Operation scaled = operation;
    if (in.size() > 1) {
      std::memcpy(scaled.scale->number.data(), in[1], size_of(scaled.dtype));
    }
    scale_elements(scaled, in[0], count, const_cast<void*>(in[0]));
    return start(communicator, scaled, in[0], out.empty() ? nullptr : out[0]);
  };
  return comm.lane()->run(std::move(call));
}

DeviceWork post(Comm& comm, const Operation& operation, cudaStream_t stream) {
  if (operation.scale) {
    return reduce_scaled(comm, operation, stream);
  }
  const Extent used = extent(operation, comm.rank(), comm.size());
  DeviceLane& lane = *comm.lane();
  const ConstElements in(operation.in, used.in, operation.dtype);
  const Elements out{operation.out, used.out, operation.dtype};
  switch (operation.kind) {
    case Kind::all_reduce:
      return lane.all_reduce(in, out, operation.op, stream);
    case Kind::broadcast:
      return lane.broadcast(in, out, operation.peer, stream);
    case Kind::reduce:
      return lane.reduce(in, out, operation.peer, operation.op, stream);
    case Kind::all_gather:
      return lane.all_gather(in, out, stream);
    case Kind::reduce_scatter:
      return lane.reduce_scatter(in, out, operation.op, stream);
    case Kind::all_to_all:
      return lane.all_to_all(in, out, stream);
    case Kind::gather:
      return lane.gather(in, out, operation.peer, stream);
    case Kind::scatter:
      return lane.scatter(in, out, operation.peer, stream);
    case Kind::send:
      return lane.send(in, operation.peer, 0, stream);
    case Kind::recv:
      return lane.recv(out, operation.peer, 0, stream);
  }
  return {};
}

DeviceWork post(const Queued& queued) {
  return post(*queued.comm, queued.operation, queued.stream);
}

/// What a group has of a communicator.
enum class Unit { collective, messages };

/// What has started, and which streams do not wait for it yet.
class Started {
 public:
  explicit Started(Refusals& refused) : refused_(refused) {}
  template <class Post>
  void start(const Comm* comm, Unit unit, std::vector<cudaStream_t> streams, Post&& post) {
    if (refused_.has(comm)) {
      return;
    }
    try {
      all_.push_back({comm, unit, post(), std::move(streams)});
    } catch (...) {
      refused_.add(comm);
    }
  }
  /// Has streams wait for the collective that a communicator has started.
  void await_collective(const Comm* comm) {
    const auto is_meant = [comm](const One& one) {
      return one.comm == comm && one.unit == Unit::collective;
    };
    for (One& one : all_) {
      if (is_meant(one)) {
        await(one);
      }
    }
    std::erase_if(all_, is_meant);
  }
  void await_all() {
    for (One& one : all_) {
      await(one);
    }
    all_.clear();
  }

 private:
  struct One {
    const Comm* comm;
    Unit unit;
    DeviceWork work;
    std::vector<cudaStream_t> streams;
  };
  void await(One& one) {
    try {
      for (const cudaStream_t stream : one.streams) {
        one.work.wait(stream);
      }
    } catch (...) {
      refused_.keep_failure();
    }
  }

  std::vector<One> all_;
  Refusals& refused_;
};

/// True the first time.
bool is_new(std::vector<const Comm*>& seen, const Comm* comm) {
  const bool found = std::ranges::find(seen, comm) != seen.end();
  if (!found) {
    seen.push_back(comm);
  }
  return !found;
}

void start_collective(const Queued& queued, Started& started) {
  started.start(queued.comm.get(), Unit::collective, {queued.stream},
                [&queued] { return post(queued); });
}

/// Each communicator's first collective, and its messages.
void start_first(std::span<const Queued> operations, Started& started) {
  std::vector<const Comm*> seen, exchanged;
  for (const Queued& queued : operations) {
    if (!queued.operation.between_two() && is_new(seen, queued.comm.get())) {
      start_collective(queued, started);
    }
  }
  for (const Queued& queued : operations) {
    if (queued.operation.between_two() && is_new(exchanged, queued.comm.get())) {
      Exchange made = exchange_of(*queued.comm, operations);
      const std::vector<cudaStream_t> streams = made.streams;
      started.start(queued.comm.get(), Unit::messages, streams,
                    [&] { return post_exchange(*queued.comm, std::move(made)); });
    }
  }
}

void start_rest(std::span<const Queued> operations, Started& started) {
  std::vector<const Comm*> seen;
  for (const Queued& queued : operations) {
    if (!queued.operation.between_two() && !is_new(seen, queued.comm.get())) {
      // The one before, whose output may be the input.
      started.await_collective(queued.comm.get());
      start_collective(queued, started);
    }
  }
}

/// A stream that waits for one operation holds up the next one's inputs. Other ranks may come to
/// the communicators in another order, or be on the same stream: so what can start does so before
/// any stream waits.
void execute_together(std::span<const Queued> operations, Refusals& refused) {
  Started started(refused);
  start_first(operations, started);
  start_rest(operations, started);
  started.await_all();
}

}  // namespace

// One alone, and collectives of one communicator, go the lane's own way, which allocates nothing.
void execute_on_devices(std::span<Queued> operations, Refusals& refused) {
  const auto goes_alone = [&](const Queued& queued) {
    return queued.comm == operations.front().comm && !queued.operation.between_two();
  };
  if (operations.size() > 1 && !std::ranges::all_of(operations, goes_alone)) {
    return execute_together(operations, refused);
  }
  try {
    for (const Queued& queued : operations) {
      post(queued).wait(queued.stream);
    }
  } catch (...) {
    refused.add(operations.front().comm.get());
  }
}

}  // namespace sprat::nccl
