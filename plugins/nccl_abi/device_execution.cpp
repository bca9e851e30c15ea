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

void exchange(Comm& comm, Exchange made) {
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
  DeviceWork work = comm.lane()->run(std::move(call));
  for (const cudaStream_t stream : made.streams) {
    work.wait(stream);
  }
}

/// Of all sends and receives of the first one's communicator.
Exchange exchange_of(std::span<const Queued> operations) {
  Exchange made;
  for (const Queued& queued : operations) {
    const Operation& operation = queued.operation;
    if (queued.comm != operations.front().comm || !operation.between_two()) {
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

}  // namespace

void execute_on_devices(std::span<Queued> operations) {
  std::vector<const Comm*> exchanged;
  for (std::size_t at = 0; at < operations.size(); ++at) {
    Queued& queued = operations[at];
    // One alone goes the lane's own way, which allocates nothing.
    if (operations.size() > 1 && queued.operation.between_two()) {
      if (std::ranges::find(exchanged, queued.comm.get()) == exchanged.end()) {
        exchanged.push_back(queued.comm.get());
        exchange(*queued.comm, exchange_of(operations.subspan(at)));
      }
      continue;
    }
    post(*queued.comm, queued.operation, queued.stream).wait(queued.stream);
  }
}

}  // namespace sprat::nccl
