// The lanes of one group.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "sprat/communicator.hpp"
#include "sprat/device.hpp"

namespace sprat::pytorch {

/// A stream of Sprat's on a device.
class OwnStream final {
 public:
  explicit OwnStream(std::shared_ptr<Device> device)
      : device_(std::move(device)), stream_(device_->make_stream()) {}
  ~OwnStream() { device_->destroy_stream(stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  DeviceStream get() const { return stream_; }

 private:
  const std::shared_ptr<Device> device_;
  const DeviceStream stream_;
};

/// A lane, and what it stands on.
struct OpenLane {
  at::Device device;
  std::shared_ptr<Communicator> ranks;
  /// Where futures are marked. Not a stream of PyTorch's pool: whoever else got that one would wait
  /// for the operation too. Shared with Works, which may outlive the lane.
  std::shared_ptr<OwnStream> futures;
  std::unique_ptr<DeviceLane> lane;  ///< Last: it uses the others until it ends.
};

/// Any thread.
class DeviceLanes final {
 public:
  using Ranks = std::shared_ptr<Communicator>;
  using Lane = std::shared_ptr<OpenLane>;

  /// For messages, which go over the group's own communicator: no other rank need take part. They
  /// have a lane of their own, since a collective must not wait for a receive.
  Lane messages(at::Device device, const Ranks& group);
  /// For collectives. The first of a device makes a communicator, which all ranks of the group must
  /// do at the same place of their calls: it is made on the caller's thread, and waits for them.
  Lane collectives(at::Device device, const Ranks& group);
  /// Waits until all collectives have ended, well or not.
  void settle_collectives();
  /// Waits until everything has ended, and closes the lanes.
  void close();

 private:
  using Key = std::pair<at::DeviceType, c10::DeviceIndex>;
  static Lane open(at::Device device, Ranks ranks);

  std::mutex mutex_;  ///< Guards the rest.
  std::map<Key, Lane> messages_, collectives_;
};

}  // namespace sprat::pytorch
