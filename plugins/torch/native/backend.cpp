#include "plugins/torch/native/backend.hpp"

#include <ATen/record_function.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "plugins/torch/native/elements.hpp"
#include "plugins/torch/native/errors.hpp"
#include "plugins/torch/native/memory.hpp"

namespace sprat::pytorch {
namespace {

using WorkPointer = c10::intrusive_ptr<c10d::Work>;

const at::Tensor& only(const Tensors& tensors) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "sprat takes one tensor at a time, not ", tensors.size());
  return tensors.front();
}

const Tensors& only(const std::vector<Tensors>& lists) {
  TORCH_CHECK_VALUE(lists.size() == 1, "sprat takes one list of tensors at a time, not ",
                    lists.size());
  return lists.front();
}

void check_length(const Tensors& list, int size, const char* what) {
  TORCH_CHECK_VALUE(list.size() == static_cast<std::size_t>(size), what, " has ", list.size(),
                    " tensors; a group of ", size, " ranks needs one for each");
}

}  // namespace

WorkPointer Backend::issue(const Tensors& inputs, const Tensors& outputs, Manner manner,
                           const MakeCall& make) {
  const Tensors& either = inputs.empty() ? outputs : inputs;
  if (either.empty() || either.front().is_cpu()) {
    return guard([&] { return issue(make(inputs, outputs), manner); });
  }
  DeviceOperation operation{.inputs = inputs, .outputs = outputs, .rank = rank_, .start = {}};
  operation.start = [this, make, manner](const Tensors& host_inputs, const Tensors& host_outputs) {
    return guard([&] { return start(make(host_inputs, host_outputs), manner.timeout, true); });
  };
  ++sequence_;
  auto work = lane(either.front().device().type()).run(std::move(operation));
  if (Batch* batch = open_batch()) {
    batch->device_works.push_back(work);
  }
  return work;
}

WorkPointer Backend::issue(Call call, Manner manner) {
  ++sequence_;
  if (Batch* batch = open_batch()) {
    const sprat::Options options{.timeout = or_default(manner.timeout), .blocking = false};
    batch->works.push_back(call.start(*ranks(), options));
    batch->messages |= c10d::isP2POp(call.operation.type);
    batch->operations.push_back(std::move(call.operation));
    return nullptr;
  }
  // c10d registers the Work of every call then, and a null one ends whoever waits for the tensor.
  if (manner.async || c10d::allow_inflight_collective_as_graph_input()) {
    return start(std::move(call), manner.timeout, false);
  }
  RECORD_USER_SCOPE(call.operation.title);
  const auto group = ranks();
  const sprat::Options options{.timeout = or_default(manner.timeout), .blocking = true};
  run_now(call.operation, *notes_, [&] { call.start(*group, options).wait(); });
  return nullptr;
}

c10::intrusive_ptr<Work> Backend::start(Call call, std::chrono::milliseconds timeout,
                                        bool of_device) {
  const auto group = of_device ? device_ranks() : ranks();
  sprat::Work work = call.start(*group, {.timeout = or_default(timeout), .blocking = false});
  return c10::make_intrusive<Work>(std::move(call.operation), std::move(work), notes_, sequence_);
}

WorkPointer Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  only(tensors);
  return issue(tensors, tensors, {opts.timeout, opts.asyncOp},
               [root = static_cast<int>(opts.rootRank)](const Tensors& in, const Tensors&) {
                 return calls::broadcast(in.front(), root);
               });
}

WorkPointer Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  if (only(tensors).is_sparse()) {
    return allreduce_sparse(tensors, opts);
  }
  return issue(tensors, tensors, {opts.timeout, opts.asyncOp},
               [op = opts.reduceOp](const Tensors& in, const Tensors&) {
                 return calls::all_reduce(in.front(), op);
               });
}

WorkPointer Backend::allreduce_coalesced(Tensors& tensors,
                                         const c10d::AllreduceCoalescedOptions& opts) {
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
      [op = opts.reduceOp, root = static_cast<int>(opts.rootRank)](
          const Tensors& in, const Tensors&) { return calls::reduce(in.front(), root, op); });
}

WorkPointer Backend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                               const c10d::AllgatherOptions& opts) {
  only(inputs);
  check_length(only(outputs), size_, "all_gather's output");
  return issue(
      inputs, outputs.front(), {opts.timeout, opts.asyncOp},
      [](const Tensors& in, const Tensors& out) { return calls::all_gather(out, in.front()); });
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
  Tensors flat;  // rank by rank, each with one output for each input
  for (const Tensors& of_rank : outputs) {
    check_length(of_rank, static_cast<int>(inputs.size()), "allgather_coalesced's output");
    flat.insert(flat.end(), of_rank.begin(), of_rank.end());
  }
  check_length(outputs.empty() ? flat : Tensors(outputs.size()), size_, "allgather_coalesced");
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
  check_length(outputs, static_cast<int>(inputs.size()),
               "allgather_into_tensor_coalesced's output");
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
  const auto root = static_cast<int>(opts.rootRank);
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
  const auto root = static_cast<int>(opts.rootRank);
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
  check_length(outputs, static_cast<int>(inputs.size()),
               "reduce_scatter_tensor_coalesced's output");
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
  settle_device();
  return issue({}, {}, {opts.timeout, opts.asyncOp},
               [](const Tensors&, const Tensors&) { return calls::barrier(); });
}

}  // namespace sprat::pytorch
