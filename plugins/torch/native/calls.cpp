#include "plugins/torch/native/calls.hpp"

#include <ATen/core/LegacyTypeDispatch.h>

#include <iterator>
#include <numeric>
#include <utility>

#include "plugins/torch/native/elements.hpp"
#include "plugins/torch/native/memory.hpp"
#include "plugins/torch/native/reduction.hpp"
#include "plugins/torch/native/staging.hpp"

namespace sprat::pytorch {
namespace calls {
namespace {

using c10d::OpType;
using sprat::Communicator;
using sprat::DeviceLane;
using sprat::DeviceStream;
using sprat::Options;

Operation operation(OpType type, const char* title, Tensors inputs, Tensors results) {
  Operation made;
  made.type = type;
  made.title = title;
  made.inputs = std::move(inputs);
  made.results = std::move(results);
  return made;
}

/// Of a root, or of a message.
Operation operation(OpType type, const char* title, Tensors inputs, Tensors results, int peer) {
  Operation made = operation(type, title, std::move(inputs), std::move(results));
  made.peer = peer;
  return made;
}

void check_same_type(const at::Tensor& one, const at::Tensor& other) {
  TORCH_CHECK(one.scalar_type() == other.scalar_type(), "tensors of one call are ",
              one.scalar_type(), " and ", other.scalar_type(), "; they must be the same");
}

void check_list(const Tensors& tensors, const at::Tensor& like) {
  TORCH_CHECK(!tensors.empty(), "a list of tensors is empty; it needs one for each rank");
  for (const at::Tensor& tensor : tensors) {
    check_same_type(tensor, like);
  }
}

void check_equal_counts(const Tensors& tensors, const at::Tensor& like, const char* what) {
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(tensor.numel() == like.numel(), what, " has tensors of ", tensor.sizes(), " and ",
                like.sizes(), "; all must have as many elements");
  }
}

bool are_equal_counts(const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() != tensors.front().numel()) {
      return false;
    }
  }
  return true;
}

std::vector<std::size_t> counts_of(const Tensors& tensors) {
  std::vector<std::size_t> counts;
  for (const at::Tensor& tensor : tensors) {
    counts.push_back(moved_count(tensor, tensor.numel()));
  }
  return counts;
}

/// Elements of each rank's rows; none: equal blocks.
std::vector<std::size_t> counts_of(const at::Tensor& tensor,
                                   const std::vector<std::int64_t>& splits, const char* what) {
  std::vector<std::size_t> counts;
  if (splits.empty()) {
    return counts;
  }
  const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const auto total = std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
  TORCH_CHECK_VALUE(total == rows, what, " splits add up to ", total, ", the tensor has ", rows,
                    " rows");
  for (const std::int64_t split : splits) {
    TORCH_CHECK_VALUE(split >= 0, what, " has a split of ", split);
    counts.push_back(rows == 0 ? 0 : moved_count(tensor, split * (tensor.numel() / rows)));
  }
  return counts;
}

/// The side without splits has equal blocks where the other one has some.
void check_equal_blocks(const at::Tensor& tensor, const std::vector<std::int64_t>& splits,
                        std::size_t others, const char* what) {
  const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  TORCH_CHECK(!splits.empty() || others == 0 || rows % static_cast<std::int64_t>(others) == 0, what,
              " has no splits and ", rows, " rows, which ", others, " ranks do not share equally");
}

void check_tag(int tag) {
  TORCH_CHECK_VALUE(tag >= 0, "tag is ", tag, "; it must not be negative");
}

}  // namespace

Call all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  Call call{operation(OpType::ALLREDUCE, "sprat:all_reduce", {tensor}, {tensor}), nullptr};
  const Elements data = reduced(updatable(tensor, call.operation));
  call.start = [data, reduction = reduction_of(op, tensor)](Communicator& ranks,
                                                            const Options& options) {
    return ranks.all_reduce(data, reduction, options);
  };
  call.on_device = [data, reduction = reduction_of(op, tensor)](
                       DeviceLane& lane, DeviceStream stream, const Options& options) {
    return lane.all_reduce(data, data, reduction, stream, options);
  };
  return call;
}

namespace {

/// Writes one tensor's elements into others of the same type and shape, as bytes: autograd is not
/// concerned, and an operation may end on another thread than the caller's.
void copy_to_all(const at::Tensor& from, const Tensors& to) {
  const at::AutoDispatchBelowADInplaceOrView plain;
  for (const at::Tensor& tensor : to) {
    if (!tensor.is_same(from)) {
      tensor.copy_(from);
    }
  }
}

void check_alike(const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(tensor.scalar_type() == tensors.front().scalar_type(),
                "invalid tensor type: tensors of one call are ", tensors.front().scalar_type(),
                " and ", tensor.scalar_type(), "; they must be the same");
    TORCH_CHECK(tensor.sizes() == tensors.front().sizes(),
                "invalid tensor size: tensors of one call are ", tensors.front().sizes(), " and ",
                tensor.sizes(), "; they must be the same");
  }
}

}  // namespace

// The tensors are combined here first, so that a type or an operation which PyTorch cannot do is
// refused before any byte moves.
Call all_reduce_several(const Tensors& tensors, const c10d::ReduceOp& op) {
  check_alike(tensors);
  const at::Tensor combined = combined_here(tensors, op);
  Call call = all_reduce(combined, op);
  call.on_device = nullptr;
  call.operation.inputs = call.operation.results = tensors;
  call.operation.staging.push_back(combined);
  finish_also(call.operation, [combined, tensors] { copy_to_all(combined, tensors); });
  return call;
}

Call broadcast(const at::Tensor& tensor, int root) {
  Call call{operation(OpType::BROADCAST, "sprat:broadcast", {tensor}, {tensor}, root), nullptr};
  const Elements data = moved(updatable(tensor, call.operation));
  call.start = [data, root](Communicator& ranks, const Options& options) {
    return ranks.broadcast(data, root, options);
  };
  call.on_device = [data, root](DeviceLane& lane, DeviceStream stream, const Options& options) {
    return lane.broadcast(data, data, root, stream, options);
  };
  return call;
}

Call broadcast_several(const Tensors& tensors, int root, std::size_t from) {
  check_alike(tensors);
  Call call = broadcast(tensors[from], root);
  call.on_device = nullptr;
  call.operation.inputs = call.operation.results = tensors;
  finish_also(call.operation, [tensors, from] { copy_to_all(tensors[from], tensors); });
  return call;
}

Call reduce(const at::Tensor& tensor, int root, const c10d::ReduceOp& op) {
  Call call{operation(OpType::REDUCE, "sprat:reduce", {tensor}, {tensor}, root), nullptr};
  const Elements data = reduced(updatable(tensor, call.operation));
  call.start = [data, root, reduction = reduction_of(op, tensor)](Communicator& ranks,
                                                                  const Options& options) {
    // On the other ranks there is no result, and PyTorch's tensor, which is both, stays as it is.
    return ranks.reduce(data, ranks.rank() == root ? data : Elements{nullptr, 0, data.dtype}, root,
                        reduction, options);
  };
  return call;
}

Call all_gather_single(const at::Tensor& output, const at::Tensor& input) {
  check_same_type(output, input);
  Call call{operation(OpType::_ALLGATHER_BASE, "sprat:all_gather", {input}, {output}), nullptr};
  const Elements part = moved(readable(input, call.operation));
  const Elements whole = moved(writable(output, call.operation));
  call.start = [part, whole](Communicator& ranks, const Options& options) {
    return ranks.all_gather(part, whole, options);
  };
  call.on_device = [part, whole](DeviceLane& lane, DeviceStream stream, const Options& options) {
    return lane.all_gather(part, whole, stream, options);
  };
  return call;
}

Call all_gather(const Tensors& outputs, const at::Tensor& input) {
  check_list(outputs, input);
  Call call{operation(OpType::ALLGATHER, "sprat:all_gather", {input}, outputs), nullptr};
  const Elements part = moved(readable(input, call.operation));
  const Elements whole = moved(joined_writable(outputs, call.operation));
  if (are_equal_counts(outputs)) {
    check_equal_counts(outputs, input, "all_gather");
    call.start = [part, whole](Communicator& ranks, const Options& options) {
      return ranks.all_gather(part, whole, options);
    };
  } else {
    call.start = [part, whole, counts = counts_of(outputs)](Communicator& ranks,
                                                            const Options& options) {
      return ranks.all_gatherv(part, whole, counts, options);
    };
  }
  return call;
}

Call all_gather_several(const std::vector<Tensors>& outputs, const Tensors& inputs) {
  check_alike(inputs);
  Tensors all;
  for (const Tensors& list : outputs) {
    all.insert(all.end(), list.begin(), list.end());
  }
  check_list(all, inputs.front());
  check_equal_counts(all, inputs.front(), "all_gather");
  Call call{operation(OpType::ALLGATHER, "sprat:all_gather", inputs, all), nullptr};
  const Elements part = moved(joined_readable(inputs, call.operation));
  const Elements whole = moved(joined_writable(outputs.front(), call.operation));
  call.start = [part, whole](Communicator& ranks, const Options& options) {
    return ranks.all_gather(part, whole, options);
  };
  finish_also(call.operation, [outputs] {
    for (std::size_t i = 0; i < outputs.front().size(); ++i) {
      for (const Tensors& list : outputs) {
        copy_to_all(outputs.front()[i], {list[i]});
      }
    }
  });
  return call;
}

Call reduce_scatter_single(const at::Tensor& output, const at::Tensor& input,
                           const c10d::ReduceOp& op) {
  check_same_type(output, input);
  Call call{operation(OpType::_REDUCE_SCATTER_BASE, "sprat:reduce_scatter", {input}, {output}),
            nullptr};
  const Elements whole = reduced(readable(input, call.operation));
  const Elements part = reduced(writable(output, call.operation));
  call.start = [part, whole, reduction = reduction_of(op, input)](Communicator& ranks,
                                                                  const Options& options) {
    return ranks.reduce_scatter(whole, part, reduction, options);
  };
  call.on_device = [part, whole, reduction = reduction_of(op, input)](
                       DeviceLane& lane, DeviceStream stream, const Options& options) {
    return lane.reduce_scatter(whole, part, reduction, stream, options);
  };
  return call;
}

Call reduce_scatter(const at::Tensor& output, const Tensors& inputs, const c10d::ReduceOp& op) {
  check_list(inputs, output);
  Call call{operation(OpType::REDUCE_SCATTER, "sprat:reduce_scatter", inputs, {output}), nullptr};
  const Elements whole = reduced(joined_readable(inputs, call.operation));
  const Elements part = reduced(writable(output, call.operation));
  const Reduction reduction = reduction_of(op, output);
  if (are_equal_counts(inputs)) {
    check_equal_counts(inputs, output, "reduce_scatter");
    call.start = [part, whole, reduction](Communicator& ranks, const Options& options) {
      return ranks.reduce_scatter(whole, part, reduction, options);
    };
  } else {
    call.start = [part, whole, reduction, counts = counts_of(inputs)](Communicator& ranks,
                                                                      const Options& options) {
      return ranks.reduce_scatterv(whole, part, counts, reduction, options);
    };
  }
  return call;
}

Call gather(const Tensors& outputs, const at::Tensor& input, int root) {
  Call call{operation(OpType::GATHER, "sprat:gather", {input}, outputs, root), nullptr};
  const Elements part = moved(readable(input, call.operation));
  Elements whole{nullptr, 0, part.dtype};
  if (!outputs.empty()) {
    check_list(outputs, input);
    check_equal_counts(outputs, input, "gather");
    whole = moved(joined_writable(outputs, call.operation));
  }
  call.start = [part, whole, root](Communicator& ranks, const Options& options) {
    return ranks.gather(part, whole, root, options);
  };
  return call;
}

Call scatter(const at::Tensor& output, const Tensors& inputs, int root) {
  Call call{operation(OpType::SCATTER, "sprat:scatter", inputs, {output}, root), nullptr};
  const Elements part = moved(writable(output, call.operation));
  Elements whole{nullptr, 0, part.dtype};
  if (!inputs.empty()) {
    check_list(inputs, output);
    check_equal_counts(inputs, output, "scatter");
    whole = moved(joined_readable(inputs, call.operation));
  }
  call.start = [part, whole, root](Communicator& ranks, const Options& options) {
    return ranks.scatter(whole, part, root, options);
  };
  return call;
}

Call all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                       const std::vector<std::int64_t>& output_splits,
                       const std::vector<std::int64_t>& input_splits) {
  check_same_type(output, input);
  Call call{operation(OpType::ALLTOALL_BASE, "sprat:all_to_all", {input}, {output}), nullptr};
  call.operation.input_splits = input_splits;
  call.operation.output_splits = output_splits;
  const Elements in = moved(readable(input, call.operation));
  const Elements out = moved(writable(output, call.operation));
  if (output_splits.empty() && input_splits.empty()) {
    call.start = [in, out](Communicator& ranks, const Options& options) {
      return ranks.all_to_all(in, out, options);
    };
    call.on_device = [in, out](DeviceLane& lane, DeviceStream stream, const Options& options) {
      return lane.all_to_all(in, out, stream, options);
    };
    return call;
  }
  check_equal_blocks(input, input_splits, output_splits.size(), "input");
  check_equal_blocks(output, output_splits, input_splits.size(), "output");
  call.start = [in, out, in_counts = counts_of(input, input_splits, "input"),
                out_counts = counts_of(output, output_splits, "output")](Communicator& ranks,
                                                                         const Options& options) {
    const auto size = static_cast<std::size_t>(ranks.size());
    const auto or_equal = [size](const std::vector<std::size_t>& counts, const Elements& all) {
      // Only one side may have splits; the other then has equal blocks, which must be said too.
      return counts.empty() ? std::vector<std::size_t>(size, all.count / size) : counts;
    };
    return ranks.all_to_allv(in, out, or_equal(in_counts, in), or_equal(out_counts, out), options);
  };
  return call;
}

Call all_to_all(const Tensors& outputs, const Tensors& inputs) {
  TORCH_CHECK(!inputs.empty(), "all_to_all needs a tensor for each rank");
  check_list(inputs, inputs.front());
  check_list(outputs, inputs.front());
  Call call{operation(OpType::ALLTOALL, "sprat:all_to_all", inputs, outputs), nullptr};
  const Elements in = moved(joined_readable(inputs, call.operation));
  const Elements out = moved(joined_writable(outputs, call.operation));
  call.start = [in, out, in_counts = counts_of(inputs), out_counts = counts_of(outputs)](
                   Communicator& ranks, const Options& options) {
    return ranks.all_to_allv(in, out, in_counts, out_counts, options);
  };
  return call;
}

Call send(const at::Tensor& tensor, int to, int tag) {
  check_tag(tag);
  Call call{operation(OpType::SEND, "sprat:send", {tensor}, {tensor}, to), nullptr};
  const Elements data = moved(readable(tensor, call.operation));
  call.start = [data, to, tag](Communicator& ranks, const Options& options) {
    return ranks.send(data, to, tag, options);
  };
  return call;
}

Call recv(const at::Tensor& tensor, int from, int tag) {
  check_tag(tag);
  const bool any = from == any_source;
  Call call{operation(any ? OpType::RECVANYSOURCE : OpType::RECV,
                      any ? "sprat:recvAnySource" : "sprat:recv", {tensor}, {tensor}, from),
            nullptr};
  const Elements data = moved(writable(tensor, call.operation));
  call.start = [data, from, tag](Communicator& ranks, const Options& options) {
    return ranks.recv(data, from, tag, options);
  };
  return call;
}

Call barrier() {
  return {operation(OpType::BARRIER, "sprat:barrier", {}, {}),
          [](Communicator& ranks, const Options& options) { return ranks.start_barrier(options); }};
}

Call all_of(std::vector<Call> each, OpType type, const char* title) {
  std::vector<Operation> operations;
  std::vector<decltype(Call::start)> starts;
  for (Call& one : each) {
    operations.push_back(std::move(one.operation));
    starts.push_back(std::move(one.start));
  }
  return {pytorch::all_of(std::move(operations), type, title),
          [starts = std::move(starts)](Communicator& ranks, Options options) {
            options.blocking =
                false;  // all are started before one is waited for, so that they overlap
            std::vector<sprat::Work> works;
            try {
              for (const auto& start : starts) {
                works.push_back(start(ranks, options));
              }
            } catch (...) {
              // The caller may free its tensors once it has the error, so what has begun must end,
              // well or not.
              try {
                sprat::all_of(std::move(works)).wait();
              } catch (const sprat::Error&) {
              }
              throw;
            }
            return sprat::all_of(std::move(works));
          }};
}

}  // namespace calls

Operation all_of(std::vector<Operation> operations, c10d::OpType type, const char* title) {
  Operation all;
  all.type = type;
  all.title = title;
  const auto append = [](Tensors& to, Tensors& from) {
    std::move(from.begin(), from.end(), std::back_inserter(to));
  };
  for (Operation& one : operations) {
    append(all.inputs, one.inputs);
    append(all.results, one.results);
    append(all.staging, one.staging);
    if (one.prepare) {
      prepare_also(all, std::move(one.prepare));
    }
    if (one.finish) {
      finish_also(all, std::move(one.finish));
    }
  }
  return all;
}

}  // namespace sprat::pytorch
