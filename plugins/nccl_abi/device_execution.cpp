// Lanes carry device memory through host memory: this gives them NCCL's operations.
#include "plugins/nccl_abi/device_execution.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include "plugins/nccl_abi/errors.hpp"
#include "sprat/device.hpp"

namespace sprat::nccl {
namespace {

/// Sends and receives of one communicator in a group, in the order of the calls.
struct Exchange {
  std::vector<Operation> operations;
  std::vector<ConstDeviceBuffer> inputs;
  std::vector<DeviceBuffer> outputs;
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
  } catch (const std::exception& error) {  // memory may have run out, too
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

DeviceWork post_exchange(Comm& comm, const Exchange& made, cudaStream_t stream) {
  DeviceCall call;
  call.inputs = made.inputs;
  call.outputs = made.outputs;
  call.stream = stream;
  call.name = "a group of ncclSend and ncclRecv";
  call.start = [&communicator = comm.data(), operations = made.operations](
                   DeviceCall::Inputs in, DeviceCall::Outputs out) {
    return start_exchange(communicator, operations, in, out);
  };
  return comm.lane()->run(std::move(call));
}

void add(Exchange& exchange, const Queued& queued) {
  const Operation& operation = queued.operation;
  const std::size_t bytes = operation.count * size_of(operation.dtype);
  if (operation.kind == Kind::send) {
    exchange.inputs.push_back({operation.in, bytes});
  } else {
    exchange.outputs.push_back({operation.out, bytes});
  }
  exchange.operations.push_back(operation);
}

/// Each rank multiplies its stand-in, which is nobody else's yet. The number may come from the
/// device, behind the same stream. In place on the device, a reduce_scatter is in place on the host
/// for the first rank alone, whose block begins where all do; the others' outputs have stand-ins of
/// their own. One that begins where its input does, and is in place nowhere, gets its own by an
/// input of its own.
DeviceWork reduce_scaled(Comm& comm, const Operation& operation, cudaStream_t stream) {
  const Extent used = extent(operation, comm.rank(), comm.size());
  const std::size_t size = size_of(operation.dtype);
  const bool apart =
      operation.kind == Kind::reduce_scatter && operation.in == operation.out && comm.rank() > 0;
  std::vector<ConstDeviceBuffer> inputs;
  if (apart) {
    inputs.push_back({operation.out, used.out * size});
  }
  inputs.push_back({operation.in, used.in * size});
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
  call.start = [&communicator = comm.data(), operation, count = used.in, apart](
                   DeviceCall::Inputs in, DeviceCall::Outputs out) {
    Operation scaled = operation;
    in = in.subspan(apart ? 1 : 0);
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

/// What a group has of one communicator, in the order of the calls.
struct Share {
  Comm* comm = nullptr;
  std::vector<const Queued*> collectives;
  Exchange messages;
  /// Each once; what starts first is on the first. As in NCCL, all that the group has of the
  /// communicator comes behind what any of them holds, and all of them wait for all of it.
  std::vector<cudaStream_t> streams;
  DeviceWork collective, exchange;  ///< Started, and the streams do not wait for them yet.
};

Share& share_of(Comm* comm, std::vector<Share>& shares) {
  const auto found = std::ranges::find(shares, comm, &Share::comm);
  if (found != shares.end()) {
    return *found;
  }
  shares.emplace_back().comm = comm;
  return shares.back();
}

void add(Share& share, const Queued& queued) {
  if (queued.operation.between_two()) {
    add(share.messages, queued);
  } else {
    share.collectives.push_back(&queued);
  }
  if (std::ranges::find(share.streams, queued.stream) == share.streams.end()) {
    share.streams.push_back(queued.stream);
  }
}

std::vector<Share> shares_of(std::span<const Queued> operations) {
  std::vector<Share> shares;
  for (const bool between_two : {false, true}) {  // in which order they start
    for (const Queued& queued : operations) {
      if (queued.operation.between_two() == between_two) {
        add(share_of(queued.comm.get(), shares), queued);
      }
    }
  }
  return shares;
}

/// What is queued in `stream` from here on comes behind what the others hold.
void follow(Device& device, cudaStream_t stream, std::span<const cudaStream_t> others) {
  for (const cudaStream_t other : others) {
    const DeviceEvent event = device.make_event();
    device.record(event, other);
    device.wait(stream, event);
    device.destroy_event(event);  // once it is reached
  }
}

/// The first stream waits for the others: the lane keeps what comes later behind what comes first.
void join_streams(const Share& share) {
  if (share.streams.size() < 2) {
    return;
  }
  Device& device = share.comm->lane()->device();
  for (const cudaStream_t stream : share.streams) {
    if (device.capturing(stream)) {  // which would draw the others into the capture
      refuse(ncclInvalidArgument,
             "a group on several streams, of which one is being captured into a graph: Sprat's "
             "operations run on the host, and a graph cannot hold them; call it outside the "
             "capture");
    }
  }
  follow(device, share.streams.front(), std::span(share.streams).subspan(1));
}

/// Before anything starts, so that no stream waits for it yet.
void join_streams(std::span<const Share> shares, Refusals& refused) {
  for (const Share& share : shares) {
    try {
      join_streams(share);
    } catch (...) {
      refused.add(share.comm);
    }
  }
}

/// What `post` has started; nothing if the communicator has refused a call of the group.
template <class Post>
DeviceWork started_by(Post&& post, const Comm* comm, Refusals& refused) {
  if (!refused.has(comm)) {
    try {
      return post();
    } catch (...) {
      refused.add(comm);
    }
  }
  return {};
}

/// Has the streams wait for what has started, if anything has.
void await(DeviceWork& work, std::span<const cudaStream_t> streams, Refusals& refused) {
  DeviceWork started = std::exchange(work, {});
  try {
    for (const cudaStream_t stream : streams) {
      started.wait(stream);
    }
  } catch (...) {
    refused.keep_failure();
  }
}

/// Each communicator's collective at this place among its own. False if none has so many.
bool start_collectives(std::size_t at, std::vector<Share>& shares, Refusals& refused) {
  bool any = false;
  for (Share& share : shares) {
    if (at < share.collectives.size()) {
      any = true;
      await(share.collective, share.streams, refused);  // its output may be the input
      share.collective =
          started_by([&] { return post(*share.collectives[at]); }, share.comm, refused);
    }
  }
  return any;
}

void start_messages(std::vector<Share>& shares, Refusals& refused) {
  for (Share& share : shares) {
    if (!share.messages.operations.empty()) {
      share.exchange = started_by(
          [&] { return post_exchange(*share.comm, share.messages, share.streams.front()); },
          share.comm, refused);
    }
  }
}

/// A stream that waits for one operation holds up the next one's inputs. Other ranks may come to
/// the communicators in another order, or be on the same stream: so what can start does so before
/// any stream waits. After that all communicators go on to their second collective, then to their
/// third: each then stands behind earlier rounds alone, on every rank, so all of a round end.
void execute_together(std::span<const Queued> operations, Refusals& refused) {
  std::vector<Share> shares = shares_of(operations);
  join_streams(shares, refused);
  start_collectives(0, shares, refused);
  start_messages(shares, refused);
  std::size_t at = 1;
  while (start_collectives(at, shares, refused)) {
    ++at;
  }
  for (Share& share : shares) {
    await(share.collective, share.streams, refused);
    await(share.exchange, share.streams, refused);
  }
}

}  // namespace

// One alone, and collectives of one communicator on one stream, go the lane's own way, which
// allocates nothing.
void execute_on_devices(std::span<Queued> operations, Refusals& refused) {
  const auto goes_alone = [&](const Queued& queued) {
    return queued.comm == operations.front().comm && queued.stream == operations.front().stream &&
           !queued.operation.between_two();
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

void join_streams(std::span<const Queued> operations, Refusals& refused) {
  for (const Share& share : shares_of(operations)) {
    if (refused.has(share.comm)) {
      continue;
    }
    try {
      join_streams(share);
      for (const cudaStream_t stream : std::span(share.streams).subspan(1)) {
        follow(share.comm->lane()->device(), stream, {&share.streams.front(), 1});
      }
    } catch (...) {
      refused.add(share.comm);
    }
  }
}

}  // namespace sprat::nccl
