#include "plugins/torch/native/observing/profiling.hpp"

#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>
#include <tuple>
#include <utility>

namespace sprat::pytorch {
namespace {

/// The names that PyTorch's own backends give their calls: tools know them.
const char* collective_name(const Operation& operation) {
  using c10d::OpType;
  switch (operation.type) {
    case OpType::BROADCAST:
      return "broadcast";
    case OpType::ALLREDUCE:
    case OpType::_ALLREDUCE_SPARSE:
      return "allreduce";
    case OpType::ALLREDUCE_COALESCED:
      return "allreduce_coalesced";
    case OpType::REDUCE:
      return "reduce";
    case OpType::ALLGATHER:
      return "all_gather";
    case OpType::_ALLGATHER_BASE:
      return "_allgather_base";
    case OpType::ALLGATHER_COALESCED:
      return "allgather_into_tensor_coalesced";
    case OpType::GATHER:
      return "gather";
    case OpType::SCATTER:
      return "scatter";
    case OpType::REDUCE_SCATTER:
      return "reduce_scatter";
    case OpType::_REDUCE_SCATTER_BASE:
      return "_reduce_scatter_base";
    case OpType::ALLTOALL_BASE:
      return operation.input_splits.empty() && operation.output_splits.empty() ? "all_to_all"
                                                                               : "all_to_allv";
    case OpType::ALLTOALL:
      return "all_to_all";
    case OpType::SEND:
      return "send";
    case OpType::RECV:
    case OpType::RECVANYSOURCE:
      return "recv";
    case OpType::BARRIER:
      return "barrier";
    default:  // not all are named: PyTorch adds operations with every release
      return "coalesced";
  }
}

std::int64_t elements_of(const std::vector<at::Tensor>& tensors) {
  std::int64_t count = 0;
  for (const at::Tensor& tensor : tensors) {
    count += tensor.numel();
  }
  return count;
}

/// Ranks 0, 2, 4 as start 0 and stride 2; a stride of -1 says that they are in no such order.
struct Series {
  int start = 0, stride = 1;
};
Series series_of(const std::vector<std::uint64_t>& ranks) {
  if (ranks.empty()) {
    return {};
  }
  const auto start = static_cast<int>(ranks.front());
  const int stride = ranks.size() > 1 ? static_cast<int>(ranks[1]) - start : 1;
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    if (static_cast<int>(ranks[i]) - static_cast<int>(ranks[i - 1]) != stride) {
      return {.start = start, .stride = -1};
    }
  }
  return {.start = start, .stride = stride};
}

}  // namespace

ProfiledCall::ProfiledCall(const Operation& operation, const ProfiledGroup& group,
                           std::uint64_t sequence) {
  if (auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION)) {
    tell(std::move(*callbacks), operation, group, sequence);
  }
}

// What RECORD_PARAM_COMMS_DATA does, which does it whether or not somebody profiles.
void ProfiledCall::tell(at::StepCallbacks callbacks, const Operation& operation,
                        const ProfiledGroup& group, std::uint64_t sequence) {
  const auto name = std::make_tuple(group.name, group.description);
  const auto number =
      std::make_tuple(static_cast<std::int64_t>(sequence), c10d::isP2POp(operation.type));
  const auto [start, stride] = series_of(group.ranks);
  const std::string collective = collective_name(operation);
  const bool is_message = c10d::isP2POp(operation.type);
  // Of a message, tools look for the other end here, as PyTorch's own backends write it.
  const int rank = is_message && operation.peer >= 0 ? operation.peer : group.rank;
  const auto& either = operation.inputs.empty() ? operation.results : operation.inputs;
  information_.emplace(
      c10::DebugInfoKind::PARAM_COMMS_INFO,
      std::make_shared<torch::ParamCommsDebugInfo>(
          name, rank, std::string(collective), elements_of(operation.inputs),
          elements_of(operation.results), either.empty() ? at::kByte : either.front().scalar_type(),
          operation.input_splits, operation.output_splits, start, stride, group.size));
  record_.emplace(std::move(callbacks));
  if (record_->needsInputs()) {
    values_ = {
        operation.inputs,        number, name,   rank,      collective, operation.input_splits,
        operation.output_splits, start,  stride, group.size};
    record_->before(at::kParamCommsCallName,
                    c10::ArrayRef<const c10::IValue>(values_.data(), values_.size()));
  } else {
    record_->before(at::kParamCommsCallName);
  }
  if (record_->needsOutputs()) {
    record_->setOutputs(std::vector<c10::IValue>(1, c10::IValue(operation.results)));
  }
}

}  // namespace sprat::pytorch
