#include "plugins/torch/native/devices/lanes.hpp"

#include <utility>

#include "plugins/torch/native/devices/registry.hpp"

namespace sprat::pytorch {

DeviceLanes::Lane DeviceLanes::open(at::Device device, Ranks ranks) {
  const std::shared_ptr<Device> opened = open_device(device);
  auto lane = std::make_shared<OpenLane>(
      OpenLane{device, std::move(ranks), std::make_shared<OwnStream>(opened), nullptr});
  lane->lane = std::make_unique<DeviceLane>(*lane->ranks, opened);
  return lane;
}

DeviceLanes::Lane DeviceLanes::messages(at::Device device, const Ranks& group) {
  const std::lock_guard lock(mutex_);
  Lane& lane = messages_[{device.type(), device.index()}];
  if (!lane) {
    lane = open(device, group);
  }
  return lane;
}

DeviceLanes::Lane DeviceLanes::collectives(at::Device device, const Ranks& group) {
  // The lock is held while ranks are waited for: another thread's call of this group comes after
  // this one on all of them.
  const std::lock_guard lock(mutex_);
  Lane& lane = collectives_[{device.type(), device.index()}];
  if (!lane) {
    // It fails with the group, and the group with it: one error is told, whichever has it.
    const std::string name = group->name() + "/device " + std::to_string(collectives_.size());
    lane = open(device, std::make_shared<Communicator>(group->duplicate(name, Failing::together)));
  }
  return lane;
}

void DeviceLanes::settle_collectives() {
  std::vector<Lane> open;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [device, lane] : collectives_) {
      if (lane) {
        open.push_back(lane);
      }
    }
  }
  for (const Lane& lane : open) {
    lane->lane->settle();  // without the lock: a receive may be asked for meanwhile
  }
}

void DeviceLanes::close() {
  std::map<Key, Lane> messages, collectives;
  {
    const std::lock_guard lock(mutex_);
    messages.swap(messages_);
    collectives.swap(collectives_);
  }
  // Collectives first, as their communicator was made of the one that messages use. A lane ends
  // when all that it was given has ended.
  collectives.clear();
  messages.clear();
}

}  // namespace sprat::pytorch
