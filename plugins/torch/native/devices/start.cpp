#include "plugins/torch/native/devices/start.hpp"

#include <ATen/core/LegacyTypeDispatch.h>

#include <span>
#include <utility>

#include "plugins/torch/native/callback_threads.hpp"
#include "plugins/torch/native/devices/registry.hpp"
#include "plugins/torch/native/elements.hpp"
#include "plugins/torch/native/errors.hpp"

namespace sprat::pytorch {
namespace {

/// The tensor with its dimensions in the order of memory, where that is channels last. Ranks that
/// move such tensors move bytes in this order, as NCCL does.
at::Tensor contiguous_view(const at::Tensor& tensor) {
  if (tensor.is_contiguous()) {
    return tensor;
  }
  TORCH_CHECK_VALUE(tensor.is_contiguous(tensor.suggest_memory_format()),
                    "Tensors must be contiguous: one of ", shape_of(tensor), " on ",
                    tensor.device(), " is not; call .contiguous()");
  // A view for bytes alone: autograd is not concerned, and inference mode allows it.
  const at::AutoDispatchBelowADInplaceOrView plain;
  return tensor.dim() == 4 ? tensor.permute({0, 2, 3, 1}) : tensor.permute({0, 2, 3, 4, 1});
}

Tensors contiguous_views(const Tensors& tensors) {
  Tensors views;
  for (const at::Tensor& tensor : tensors) {
    views.push_back(contiguous_view(tensor));
  }
  return views;
}

/// What stands for a tensor, without holding it.
struct Form {
  std::vector<std::int64_t> sizes;
  at::ScalarType dtype;
};

std::vector<Form> forms_of(const Tensors& tensors) {
  std::vector<Form> forms;
  for (const at::Tensor& tensor : tensors) {
    forms.push_back({tensor.sizes().vec(), tensor.scalar_type()});
  }
  return forms;
}

/// Takes as many of `memory` as there are forms.
template <class Pointer>
Tensors take_stand_ins(const std::vector<Form>& forms, std::span<Pointer const>& memory) {
  Tensors hosts;
  for (std::size_t i = 0; i < forms.size(); ++i) {
    hosts.push_back(at::from_blob(const_cast<void*>(static_cast<const void*>(memory[i])),
                                  forms[i].sizes, at::TensorOptions().dtype(forms[i].dtype)));
  }
  memory = memory.subspan(forms.size());
  return hosts;
}

/// What the lane's thread does with calls whose inputs have come. It holds no tensor of the
/// device, since to free one may take Python's lock.
class Starter final {
 public:
  Starter(const std::vector<DeviceCallParts>& parts, std::shared_ptr<Communicator> ranks,
          std::shared_ptr<Observer> observer)
      : ranks_(std::move(ranks)), observer_(std::move(observer)) {
    for (const DeviceCallParts& part : parts) {
      parts_.push_back({forms_of(part.inputs), forms_of(part.outputs), part.make, part.observed});
    }
  }

  /// Several tensors on a side go through copies of the host's that are put back at the end.
  bool finishes() const {
    for (const Part& part : parts_) {
      if (part.inputs.size() > 1 || part.outputs.size() > 1) {
        return true;
      }
    }
    return false;
  }

  /// Calls of one operation are all started before one is waited for.
  sprat::Work start(sprat::DeviceCall::Inputs inputs, sprat::DeviceCall::Outputs outputs) {
    std::vector<sprat::Work> works;
    for (const Part& part : parts_) {
      Call call =
          part.make(take_stand_ins(part.inputs, inputs), take_stand_ins(part.outputs, outputs));
      if (call.operation.prepare) {
        call.operation.prepare();
      }
      works.push_back(
          call.start(*ranks_, {.timeout = part.observed.deadline.timeout, .blocking = false}));
      observer_->started(part.observed, works.back());
      operations_.push_back(std::move(call.operation));
    }
    sprat::Work all = works.size() == 1 ? works.front() : sprat::all_of(std::move(works));
    started->set(all);
    return all;
  }

  /// After the operation: what has come into copies goes where the lane takes it from.
  void finish() {
    for (const Operation& operation : operations_) {
      if (operation.finish) {
        operation.finish();
      }
    }
  }

  const std::shared_ptr<Started> started = std::make_shared<Started>();

 private:
  struct Part {
    std::vector<Form> inputs, outputs;
    MakeCall make;
    Observed observed;
  };

  std::vector<Part> parts_;
  const std::shared_ptr<Communicator> ranks_;  ///< Of the lane, which outlives every start.
  const std::shared_ptr<Observer> observer_;
  std::vector<Operation> operations_;  ///< Of the lane's thread, then of whoever finishes.
};

/// Waits, which returns at once, and finishes; why it failed, or nothing.
std::optional<Error> finished(Starter& starter) {
  try {
    starter.started->get().wait();
    starter.finish();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(ErrorCode::unavailable, error.what());
  }
}

/// Errors of PyTorch's that calls throw, as the lane knows them.
template <class Function>
auto as_sprat(Function&& function) {
  try {
    return function();
  } catch (const c10::Error& error) {
    throw Error(ErrorCode::invalid_argument, error.what_without_backtrace());
  }
}

sprat::DeviceWork run_by_stand_ins(OpenLane& lane, const std::vector<DeviceCallParts>& parts,
                                   const std::shared_ptr<Starter>& starter) {
  std::vector<ConstDeviceBuffer> inputs;
  std::vector<DeviceBuffer> outputs;
  for (const DeviceCallParts& part : parts) {
    for (const at::Tensor& tensor : part.inputs) {
      inputs.push_back({tensor.data_ptr(), tensor.nbytes()});
    }
    for (const at::Tensor& tensor : part.outputs) {
      outputs.push_back({tensor.data_ptr(), tensor.nbytes()});
    }
  }
  sprat::DeviceCall call{.inputs = inputs,
                         .outputs = outputs,
                         .stream = current_stream(lane.device),
                         .name = parts.front().call.operation.title,
                         .start = {},
                         .begin = {}};
  if (!starter->finishes()) {
    call.start = [starter](auto in, auto out) {
      return as_sprat([&] { return starter->start(in, out); });
    };
    return lane.lane->run(call);
  }
  call.begin = [starter](auto in, auto out, sprat::DeviceCall::Ended ended) {
    as_sprat([&] { return starter->start(in, out); }).on_done([starter, ended = std::move(ended)] {
      // Copies take their time, and Sprat's thread is not to be held up.
      CallbackThreads::of_process().post([starter, ended] { ended(finished(*starter)); });
    });
  };
  return lane.lane->run(call);
}

}  // namespace

std::optional<at::Device> device_of(const Tensors& inputs, const Tensors& outputs) {
  std::optional<at::Device> found;
  for (const Tensors* list : {&inputs, &outputs}) {
    for (const at::Tensor& tensor : *list) {
      TORCH_CHECK_VALUE(!found || *found == tensor.device(), "tensors of one call are on ", *found,
                        " and on ", tensor.device(), "; they must be on the same device");
      found = tensor.device();
    }
  }
  return found && found->is_cpu() ? std::nullopt : found;
}

DeviceCallParts checked_parts(const Tensors& inputs, const Tensors& outputs, MakeCall make) {
  for (const Tensors* list : {&inputs, &outputs}) {
    for (const at::Tensor& tensor : *list) {
      TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, "sprat takes dense tensors on ",
                        tensor.device(), ", not one of layout ", tensor.layout());
    }
  }
  DeviceCallParts parts{
      contiguous_views(inputs), contiguous_views(outputs), std::move(make), {}, {}};
  parts.call = parts.make(parts.inputs, parts.outputs);
  if (!outputs.empty()) {
    parts.call.operation.results = outputs;
  }
  return parts;
}

c10::intrusive_ptr<StreamWork> start_on_lane(OpenLane& lane, std::vector<DeviceCallParts> parts,
                                             std::shared_ptr<Observer> observer) {
  std::vector<Operation> operations;
  pytorch::Work::Parts observed;
  for (const DeviceCallParts& part : parts) {
    operations.push_back(part.call.operation);
    observed.push_back(part.observed);
  }
  Operation whole = operations.size() == 1
                        ? std::move(operations.front())
                        : all_of(std::move(operations), c10d::OpType::COALESCED, "sprat:coalesced");
  whole.finish = whole.prepare = nullptr;  // of tensors that the host cannot read
  auto work =
      c10::make_intrusive<StreamWork>(std::move(whole), lane, observer, std::move(observed));
  if (const DeviceCallParts& first = parts.front(); parts.size() == 1 && first.call.on_device) {
    const Options options{.timeout = first.observed.deadline.timeout};
    work->taken(first.call.on_device(*lane.lane, current_stream(lane.device), options),
                std::make_shared<Started>());
    return work;
  }
  const auto starter = std::make_shared<Starter>(parts, lane.ranks, std::move(observer));
  work->taken(run_by_stand_ins(lane, parts, starter), starter->started);
  return work;
}

}  // namespace sprat::pytorch
