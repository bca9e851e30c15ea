#include "plugins/torch/native/backend.hpp"

#include <ATen/record_function.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "plugins/torch/native/devices/registry.hpp"
#include "plugins/torch/native/elements.hpp"
#include "plugins/torch/native/errors.hpp"
#include "plugins/torch/native/memory.hpp"

namespace sprat::pytorch {
namespace {

using WorkPointer = c10::intrusive_ptr<c10d::Work>;

// For roots and lists that do not fit, PyTorch's own backends throw RuntimeError, and its tests
// expect that. So these checks are TORCH_CHECK and not TORCH_CHECK_VALUE.

const at::Tensor& only(const Tensors& tensors) {
  TORCH_CHECK(tensors.size() == 1, "requires a single-element tensor list, not one of ",
              tensors.size());
  return tensors.front();
}

const Tensors& only(const std::vector<Tensors>& lists) {
  TORCH_CHECK(lists.size() == 1, "requires a single-element list of tensor lists, not one of ",
              lists.size());
  return lists.front();
}

void check_some(const Tensors& tensors, const char* what) {
  TORCH_CHECK(!tensors.empty(), what, " requires non-empty tensor list");
}

void check_length(const Tensors& list, int size, const char* what) {
  TORCH_CHECK(list.size() == static_cast<std::size_t>(size), what, " has ", list.size(),
              " tensors; a group of ", size, " ranks needs one for each");
}

/// Every input of a coalesced call has its output.
void check_pairs(const Tensors& inputs, std::size_t outputs, const char* what) {
  TORCH_CHECK(!inputs.empty(), what, " of no tensors; it needs at least one");
  TORCH_CHECK(inputs.size() == outputs, what, " of ", inputs.size(), " inputs has ", outputs,
              " outputs; it needs one for each");
}

/// What a rank has one block of, and what has one of every rank.
struct Blocks {
  const Tensors& parts;
  const Tensors& wholes;
};

/// Of a coalesced call: all of it is refused before any of it is started.
void check_blocks(const Blocks& blocks, int size, const char* what) {
  for (std::size_t i = 0; i < blocks.parts.size(); ++i) {
    const at::Tensor& part = blocks.parts[i];
    const at::Tensor& whole = blocks.wholes[i];
    TORCH_CHECK_VALUE(whole.numel() == part.numel() * size, what, " has tensors of ", whole.sizes(),
                      " and ", part.sizes(), " at index ", i, "; a group of ", size,
                      " ranks needs ", size, " times as many elements in the larger one");
  }
}

int checked_root(std::int64_t root, int size) {
  TORCH_CHECK(root >= 0 && root < size, "invalid root rank ", root, "; a group of ", size,
              " ranks has 0 to ", size - 1);
  return static_cast<int>(root);
}

void check_contiguous(const at::Tensor& tensor, const char* what) {
  TORCH_CHECK_VALUE(tensor.is_contiguous(tensor.suggest_memory_format()),
                    "Tensors must be contiguous: all_to_all_single's ", what, " of ",
                    shape_of(tensor), " is not; call .contiguous()");
}

}  // namespace

WorkPointer Backend::issue(const Tensors& inputs, const Tensors& outputs, Manner manner,
                           const MakeCall& make) {
  const auto device = device_of(inputs, outputs);
  return guard([&]() -> WorkPointer {
    return device ? issue_on(*device, checked_parts(inputs, outputs, make), manner)
                  : issue(make(inputs, outputs), manner);
  });
}

WorkPointer Backend::issue_on(at::Device device, DeviceCallParts parts, Manner manner) {
  static_cast<void>(open_device(device));  // refuses what is not served, before anything is counted
  const std::uint64_t number = ++sequence_;
  const ProfiledCall profile = profiled(parts.call.operation, number);
  parts.observed = observe(parts.call.operation, number, manner);
  if (Batch* batch = open_batch()) {
    batch->on_device.push_back(std::move(parts));
    return nullptr;
  }
  std::vector<DeviceCallParts> one;
  one.push_back(std::move(parts));
  return start_on(device, std::move(one));
}

WorkPointer Backend::start_on(at::Device device, std::vector<DeviceCallParts> parts) {
  std::vector<Observed> observed;
  for (const DeviceCallParts& part : parts) {
    observed.push_back(part.observed);
  }
  try {
    const bool messages = c10d::isP2POp(parts.front().call.operation.type);
    const auto lane =
        messages ? lanes_.messages(device, ranks()) : lanes_.collectives(device, ranks());
    return start_on_lane(*lane, std::move(parts), observer_);
  } catch (...) {
    for (const Observed& one : observed) {
      observer_->end(one, std::current_exception(), Observed::Clock::now());
    }
    throw;
  }
}

// Operations that need each other, as a send and a receive do, go into a lane as one: of two, the
// second could wait for memory that the first one has.
void Backend::start_batch_on_devices(Batch& batch, std::vector<WorkPointer>& works) {
  std::map<std::pair<std::string, bool>, std::vector<DeviceCallParts>> lanes;
  for (DeviceCallParts& parts : batch.on_device) {
    const at::Device device = *device_of(parts.inputs, parts.outputs);
    lanes[{device.str(), c10d::isP2POp(parts.call.operation.type)}].push_back(std::move(parts));
  }
  for (auto& [lane, parts] : lanes) {
    works.push_back(guard([&] { return start_on(at::Device(lane.first), std::move(parts)); }));
  }
}

ProfiledCall Backend::profiled(const Operation& operation, std::uint64_t number) const {
  return ProfiledCall(operation,
                      {.name = observer_->notes.group,
                       .description = pg_desc_,
                       .rank = rank_,
                       .size = size_,
                       .ranks = observer_->ranks},
                      number);
}

WorkPointer Backend::issue(Call call, Manner manner) {
  const std::uint64_t number = ++sequence_;
  const ProfiledCall profile = profiled(call.operation, number);
  const auto group = ranks();
  const Observed observed = observe(call.operation, number, manner);
  if (Batch* batch = open_batch()) {
    // Nothing in a batch waits: a receive may need a send that comes later in the same batch.
    batch->works.push_back(begun(call, *group, observed));
    batch->observed.push_back(observed);
    batch->messages |= c10d::isP2POp(call.operation.type);
    batch->operations.push_back(std::move(call.operation));
    return nullptr;
  }
  // If collectives in flight may be inputs of graphs, c10d registers the Work of every call, and
  // wait_tensor() on a null one would crash. So there is a Work even of a call that is waited for.
  if (manner.async || c10d::allow_inflight_collective_as_graph_input()) {
    return start(std::move(call), *group, observed);
  }
  RECORD_USER_SCOPE(call.operation.title);
  const sprat::Options options{.timeout = observed.deadline.timeout, .blocking = true};
  run_now(call.operation, *observer_, observed, [&] {
    if (call.operation.prepare) {
      call.operation.prepare();
    }
    call.start(*group, options).wait();
  });
  return nullptr;
}

Observed Backend::observe(const Operation& operation, std::uint64_t number, Manner manner) {
  return observer_->begin(operation, number, manner.timeout, pg_desc_);
}

sprat::Work Backend::begun(Call& call, sprat::Communicator& ranks, const Observed& observed) {
  try {
    if (call.operation.prepare) {
      std::exchange(call.operation.prepare, nullptr)();  // it holds tensors
    }
    sprat::Work work = call.start(ranks, {.timeout = observed.deadline.timeout, .blocking = false});
    observer_->started(observed, work);
    return work;
  } catch (...) {
    observer_->end(observed, std::current_exception(), Observed::Clock::now());
    throw;
  }
}

c10::intrusive_ptr<Work> Backend::start(Call call, sprat::Communicator& ranks,
                                        const Observed& observed) {
  sprat::Work started = begun(call, ranks, observed);
  auto work = c10::make_intrusive<Work>(std::move(call.operation), std::move(started), observer_,
                                        Work::Parts{observed});
  if (observer_->follows()) {
    work->follow();
  }
  return work;
}

WorkPointer Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  const int root = checked_root(opts.rootRank, size_);
  TORCH_CHECK(opts.rootTensor >= 0 && opts.rootTensor < std::ssize(tensors), "invalid root tensor ",
              opts.rootTensor, "; the list has ", tensors.size());
  if (tensors.size() == 1) {
    return issue(
        tensors, tensors, {opts.timeout, opts.asyncOp},
        [root](const Tensors& in, const Tensors&) { return calls::broadcast(in.front(), root); });
  }
  const auto from = static_cast<std::size_t>(opts.rootTensor);
  return issue(tensors, tensors, {opts.timeout, opts.asyncOp},
               [root, from](const Tensors& in, const Tensors&) {
                 return calls::broadcast_several(in, root, from);
               });
}

WorkPointer Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  check_some(tensors, "all_reduce");
  if (tensors.front().is_sparse()) {
    return allreduce_sparse(tensors, opts);
  }
  return issue(tensors, tensors, {opts.timeout, opts.asyncOp},
               [op = opts.reduceOp](const Tensors& in, const Tensors&) {
                 return in.size() == 1 ? calls::all_reduce(in.front(), op)
                                       : calls::all_reduce_several(in, op);
               });
}

WorkPointer Backend::allreduce_coalesced(Tensors& tensors,
                                         const c10d::AllreduceCoalescedOptions& opts) {
  check_pairs(tensors, tensors.size(), "all_reduce_coalesced");
  return issue(tensors, tensors, {opts.timeout, opts.asyncOp},
               [op = opts.reduceOp](const Tensors& in, const Tensors&) {
                 std::vector<Call> each;
                 for (const at::Tensor& tensor : in) {
                   each.push_back(calls::all_reduce(tensor, op));
                 }
                 return calls::all_of(std::move(each), c10d::OpType::ALLREDUCE_COALESCED,
                                      "sprat:all_reduce_coalesced");
               });
}

WorkPointer Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  only(tensors);
  return issue(
      tensors, tensors, {opts.timeout, opts.asyncOp},
      [op = opts.reduceOp, root = checked_root(opts.rootRank, size_)](
          const Tensors& in, const Tensors&) { return calls::reduce(in.front(), root, op); });
}

WorkPointer Backend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                               const c10d::AllgatherOptions& opts) {
  check_some(inputs, "all_gather");
  if (inputs.size() > 1) {
    return gather_several(outputs, inputs, opts);
  }
  check_length(only(outputs), size_, "all_gather's output");
  return issue(
      inputs, outputs.front(), {opts.timeout, opts.asyncOp},
      [](const Tensors& in, const Tensors& out) { return calls::all_gather(out, in.front()); });
}

WorkPointer Backend::gather_several(std::vector<Tensors>& outputs, Tensors& inputs,
                                    const c10d::AllgatherOptions& opts) {
  TORCH_CHECK(outputs.size() == inputs.size(), "all_gather of ", inputs.size(), " inputs has ",
              outputs.size(), " output lists; it needs one for each");
  Tensors flat;
  for (const Tensors& list : outputs) {
    TORCH_CHECK(list.size() == inputs.size() * static_cast<std::size_t>(size_),
                "all_gather's output has ", list.size(), " tensors; ", inputs.size(),
                " inputs of each of ", size_, " ranks need one for each");
    flat.insert(flat.end(), list.begin(), list.end());
  }
  return issue(inputs, flat, {opts.timeout, opts.asyncOp},
               [lists = outputs.size()](const Tensors& in, const Tensors& out) {
                 const std::size_t each = out.size() / lists;
                 std::vector<Tensors> whole;
                 for (std::size_t i = 0; i < lists; ++i) {
                   const auto first = out.begin() + static_cast<std::ptrdiff_t>(i * each);
                   whole.emplace_back(first, first + static_cast<std::ptrdiff_t>(each));
                 }
                 return calls::all_gather_several(whole, in);
               });
}

WorkPointer Backend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                     const c10d::AllgatherOptions& opts) {
  return issue({input}, {output}, {opts.timeout, opts.asyncOp},
               [](const Tensors& in, const Tensors& out) {
                 return calls::all_gather_single(out.front(), in.front());
               });
}

WorkPointer Backend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                         const c10d::AllgatherOptions& opts) {
  TORCH_CHECK(outputs.size() == static_cast<std::size_t>(size_),
              "all_gather_coalesced's output has ", outputs.size(), " lists; a group of ", size_,
              " ranks needs one for each");
  Tensors flat;  // rank by rank, each with one output for each input
  for (const Tensors& of_rank : outputs) {
    check_pairs(inputs, of_rank.size(), "all_gather_coalesced");
    // A single input may have outputs of any lengths. If a list is wrong on every rank, each rank
    // must find that out by itself. Otherwise only the rank whose input does not fit would raise,
    // and the others would wait for it.
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      TORCH_CHECK(of_rank[i].numel() == inputs[i].numel(),
                  "all_gather_coalesced's outputs at index ", i, " have ", of_rank[i].sizes(),
                  " for an input of ", inputs[i].sizes());
    }
    flat.insert(flat.end(), of_rank.begin(), of_rank.end());
  }
  return issue(inputs, flat, {opts.timeout, opts.asyncOp},
               [size = static_cast<std::size_t>(size_)](const Tensors& in, const Tensors& out) {
                 std::vector<Call> each;
                 for (std::size_t i = 0; i < in.size(); ++i) {
                   Tensors of_input;
                   for (std::size_t rank = 0; rank < size; ++rank) {
                     of_input.push_back(out[rank * in.size() + i]);
                   }
                   each.push_back(calls::all_gather(of_input, in[i]));
                 }
                 return calls::all_of(std::move(each), c10d::OpType::ALLGATHER_COALESCED,
                                      "sprat:all_gather_coalesced");
               });
}

WorkPointer Backend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                     const c10d::AllgatherOptions& opts) {
  check_pairs(inputs, outputs.size(), "allgather_into_tensor_coalesced");
  check_blocks({.parts = inputs, .wholes = outputs}, size_, "allgather_into_tensor_coalesced");
  return issue(inputs, outputs, {opts.timeout, opts.asyncOp},
               [](const Tensors& in, const Tensors& out) {
                 std::vector<Call> each;
                 for (std::size_t i = 0; i < in.size(); ++i) {
                   each.push_back(calls::all_gather_single(out[i], in[i]));
                 }
                 return calls::all_of(std::move(each), c10d::OpType::ALLGATHER_COALESCED,
                                      "sprat:all_gather_coalesced");
               });
}

WorkPointer Backend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                            const c10d::GatherOptions& opts) {
  only(inputs);
  const int root = checked_root(opts.rootRank, size_);
  if (rank_ == root) {
    check_length(only(outputs), size_, "gather's output");
  }
  return issue(inputs, rank_ == root ? outputs.front() : Tensors{}, {opts.timeout, opts.asyncOp},
               [root](const Tensors& in, const Tensors& out) {
                 return calls::gather(out, in.front(), root);
               });
}

WorkPointer Backend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                             const c10d::ScatterOptions& opts) {
  only(outputs);
  const int root = checked_root(opts.rootRank, size_);
  if (rank_ == root) {
    check_length(only(inputs), size_, "scatter's input");
  }
  return issue(rank_ == root ? inputs.front() : Tensors{}, outputs, {opts.timeout, opts.asyncOp},
               [root](const Tensors& in, const Tensors& out) {
                 return calls::scatter(out.front(), in, root);
               });
}

WorkPointer Backend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                    const c10d::ReduceScatterOptions& opts) {
  only(outputs);
  check_length(only(inputs), size_, "reduce_scatter's input");
  return issue(inputs.front(), outputs, {opts.timeout, opts.asyncOp},
               [op = opts.reduceOp](const Tensors& in, const Tensors& out) {
                 return calls::reduce_scatter(out.front(), in, op);
               });
}

WorkPointer Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                          const c10d::ReduceScatterOptions& opts) {
  return issue({input}, {output}, {opts.timeout, opts.asyncOp},
               [op = opts.reduceOp](const Tensors& in, const Tensors& out) {
                 return calls::reduce_scatter_single(out.front(), in.front(), op);
               });
}

WorkPointer Backend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                     const c10d::ReduceScatterOptions& opts) {
  check_pairs(inputs, outputs.size(), "reduce_scatter_tensor_coalesced");
  check_blocks({.parts = outputs, .wholes = inputs}, size_, "reduce_scatter_tensor_coalesced");
  return issue(inputs, outputs, {opts.timeout, opts.asyncOp},
               [op = opts.reduceOp](const Tensors& in, const Tensors& out) {
                 std::vector<Call> each;
                 for (std::size_t i = 0; i < in.size(); ++i) {
                   each.push_back(calls::reduce_scatter_single(out[i], in[i], op));
                 }
                 return calls::all_of(std::move(each), c10d::OpType::REDUCE_SCATTER,
                                      "sprat:reduce_scatter_coalesced");
               });
}

WorkPointer Backend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                   std::vector<std::int64_t>& output_splits,
                                   std::vector<std::int64_t>& input_splits,
                                   const c10d::AllToAllOptions& opts) {
  check_contiguous(output, "output");
  check_contiguous(input, "input");
  for (const auto* splits : {&output_splits, &input_splits}) {
    TORCH_CHECK_VALUE(splits->empty() || splits->size() == static_cast<std::size_t>(size_),
                      "all_to_all has ", splits->size(), " splits for ", size_, " ranks");
  }
  return issue({input}, {output}, {opts.timeout, opts.asyncOp},
               [output_splits, input_splits](const Tensors& in, const Tensors& out) {
                 return calls::all_to_all_single(out.front(), in.front(), output_splits,
                                                 input_splits);
               });
}

WorkPointer Backend::alltoall(Tensors& outputs, Tensors& inputs,
                              const c10d::AllToAllOptions& opts) {
  check_length(outputs, size_, "all_to_all's output");
  check_length(inputs, size_, "all_to_all's input");
  return issue(inputs, outputs, {opts.timeout, opts.asyncOp},
               [](const Tensors& in, const Tensors& out) { return calls::all_to_all(out, in); });
}

WorkPointer Backend::send(Tensors& tensors, int to, int tag) {
  only(tensors);
  return issue(tensors, {}, {}, [to, tag](const Tensors& in, const Tensors&) {
    return calls::send(in.front(), to, tag);
  });
}

WorkPointer Backend::recv(Tensors& tensors, int from, int tag) {
  only(tensors);
  return issue({}, tensors, {}, [from, tag](const Tensors&, const Tensors& out) {
    return calls::recv(out.front(), from, tag);
  });
}

WorkPointer Backend::recvAnysource(Tensors& tensors, int tag) {
  return recv(tensors, any_source, tag);
}

WorkPointer Backend::barrier(const c10d::BarrierOptions& opts) {
  // Collectives of devices' tensors run on communicators of their own, so this one's order does not
  // cover them. Messages need not have come: a receive may wait for a send after the barrier.
  lanes_.settle_collectives();
  return issue({}, {}, {opts.timeout, opts.asyncOp},
               [](const Tensors&, const Tensors&) { return calls::barrier(); });
}

}  // namespace sprat::pytorch
