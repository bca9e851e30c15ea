// What users hold: lanes and the handles of their operations.
#include <utility>

#include "comm/base/check.hpp"
#include "device/lane_impl.hpp"

namespace sprat {

using device::aligned;
using device::Operand;

DeviceWork::DeviceWork(State* state) noexcept : state_(state) {}
DeviceWork::DeviceWork(const DeviceWork& other) noexcept : state_(other.state_) {
  if (state_ != nullptr) {
    state_->core->hold(*state_);
  }
}
DeviceWork::DeviceWork(DeviceWork&& other) noexcept
    : state_(std::exchange(other.state_, nullptr)) {}
DeviceWork& DeviceWork::operator=(DeviceWork other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}
DeviceWork::~DeviceWork() {
  if (state_ != nullptr) {
    state_->core->let_go(state_);
  }
}

void DeviceWork::wait(DeviceStream stream) {
  if (state_ != nullptr) {
    state_->core->wait(*state_, stream);
  }
}
void DeviceWork::synchronize() {
  if (state_ != nullptr) {
    state_->core->synchronize(*state_);
  }
}
bool DeviceWork::done() const noexcept {
  return state_ == nullptr || device::reached(state_->word, state_->value);
}
std::optional<Error> DeviceWork::failure() const {
  return state_ == nullptr ? std::nullopt : state_->core->failure(*state_);
}
void DeviceWork::on_done(std::function<void()> notice) {
  if (state_ == nullptr) {
    return notice();
  }
  state_->core->on_done(*state_, std::move(notice));
}

DeviceLane::DeviceLane(Communicator& communicator, std::shared_ptr<Device> device,
                       LaneOptions options)
    : impl_(std::make_unique<Impl>()) {
  require(device != nullptr, "a lane without a device");
  impl_->core = std::make_shared<device::LaneCore>(communicator, std::move(device), options);
  impl_->core->begin();
}
DeviceLane::~DeviceLane() { impl_->core->end(); }

Device& DeviceLane::device() noexcept { return impl_->core->device(); }
void DeviceLane::settle() { impl_->core->settle(); }

DeviceWork DeviceLane::run(DeviceCall call) {
  device::LaneCore& core = *impl_->core;
  require((call.start != nullptr) != (call.begin != nullptr), call.name,
          ": either `start` or `begin` of a DeviceCall is set");
  device::Operation* const operation = core.open(call.stream, call.name);
  DeviceWork work(operation);
  std::size_t bytes = 0;
  for (const ConstDeviceBuffer& input : call.inputs) {
    Operand operand = core.operand(input.data, input.bytes, call.name);
    operand.blocks = 1;
    operand.size = input.bytes;
    operand.offset = bytes;
    bytes += aligned(input.bytes);
    operation->inputs.push_back(operand);
  }
  for (const DeviceBuffer& output : call.outputs) {
    Operand operand = core.operand(output.data, output.bytes, call.name);
    operand.blocks = 1;
    operand.size = output.bytes;
    const Operand* const same = device::in_place_with(operation->inputs, operand);
    operand.offset = same != nullptr ? same->offset : bytes;
    bytes += same != nullptr ? 0 : aligned(output.bytes);
    operation->outputs.push_back(operand);
  }
  // One element, of all bytes: it goes whole.
  operation->chunks =
      device::Chunks({.count = 1, .in = {1, bytes}, .out = {1, 0}, .one_stand_in = true}, bytes);
  const DeviceStream stream = call.stream;
  call.inputs = {};  // the caller's lists end with the call
  call.outputs = {};
  operation->call = std::move(call);
  core.post(*operation, stream);
  return work;
}

namespace device {

const Operand* in_place_with(const std::vector<Operand>& inputs, const Operand& output) {
  for (const Operand& input : inputs) {
    if (output.size > 0 && input.size > 0 && input.memory == output.memory) {
      require(output.size <= input.size, "an output of ", output.size,
              " bytes begins where an input of ", input.size,
              " does; in place, an output is no longer than its input");
      return &input;
    }
  }
  return nullptr;
}

}  // namespace device
}  // namespace sprat
