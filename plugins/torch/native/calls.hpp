// PyTorch's collectives, on host tensors, as calls of Sprat: what is to be run, not running it.
#pragma once

#include <functional>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "plugins/torch/native/work.hpp"
#include "sprat/communicator.hpp"
#include "sprat/device.hpp"

namespace sprat::pytorch {

using Tensors = std::vector<at::Tensor>;

/// An operation, and how it is started, once, while the operation lives and after its `prepare`.
struct Call {
  Operation operation;
  std::function<sprat::Work(sprat::Communicator&, const sprat::Options&)> start = nullptr;
  /// On tensors of a device, where its lane has such an operation itself; else null.
  std::function<sprat::DeviceWork(sprat::DeviceLane&, sprat::DeviceStream, const sprat::Options&)>
      on_device = nullptr;
};

// Tensors that are not contiguous, and lists whose tensors do not follow each other in memory, go
// through copies in shared memory. All throw c10::Error for lists or types that do not fit, and
// ValueError, which is one, for shapes.
namespace calls {

Call all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op);
/// Every tensor <- op over ranks of op over their tensors, of which all have as many.
Call all_reduce_several(const Tensors& tensors, const c10d::ReduceOp& op);
Call broadcast(const at::Tensor& tensor, int root);
/// Every tensor <- the root's tensor number `from`.
Call broadcast_several(const Tensors& tensors, int root, std::size_t from);
Call reduce(const at::Tensor& tensor, int root, const c10d::ReduceOp& op);
/// output holds one input for each rank, in rank order.
Call all_gather_single(const at::Tensor& output, const at::Tensor& input);
/// outputs[r] <- rank r's input, which may differ in length from rank to rank.
Call all_gather(const Tensors& outputs, const at::Tensor& input);
/// Each list <- the inputs of all ranks, of which all have as many: rank 0's first.
Call all_gather_several(const std::vector<Tensors>& outputs, const Tensors& inputs);
Call reduce_scatter_single(const at::Tensor& output, const at::Tensor& input,
                           const c10d::ReduceOp& op);
/// output <- op over ranks of their inputs[rank], which may differ in length.
Call reduce_scatter(const at::Tensor& output, const Tensors& inputs, const c10d::ReduceOp& op);
/// `outputs` is empty but on the root.
Call gather(const Tensors& outputs, const at::Tensor& input, int root);
/// `inputs` is empty but on the root.
Call scatter(const at::Tensor& output, const Tensors& inputs, int root);
/// Splits are rows for each rank; both empty: equal blocks.
Call all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                       const std::vector<std::int64_t>& output_splits,
                       const std::vector<std::int64_t>& input_splits);
Call all_to_all(const Tensors& outputs, const Tensors& inputs);
Call send(const at::Tensor& tensor, int to, int tag);
/// `from` may be sprat::any_source.
Call recv(const at::Tensor& tensor, int from, int tag);
Call barrier();

/// One call for several, of one collective.
Call all_of(std::vector<Call> calls, c10d::OpType type, const char* title);

}  // namespace calls

/// What several operations keep, yield and finish, as one.
Operation all_of(std::vector<Operation> operations, c10d::OpType type, const char* title);

}  // namespace sprat::pytorch
