// Memory and a queue of work: what the library needs of a host or an accelerator.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace sprat {

/// Work on one device is done in the order it was queued. Any thread; errors throw
/// Error{unavailable} with the device's own words.
class Device {
 public:
  virtual ~Device() = default;
  /// "host", "cuda:0 (NVIDIA H100)".
  virtual const std::string& name() const noexcept = 0;
  /// Uninitialised memory of this device, aligned to at least 64 bytes.
  virtual void* allocate(std::size_t bytes) = 0;
  /// `memory` is from allocate(), and no work on it is queued. Null is allowed.
  virtual void free(void* memory) noexcept = 0;
  /// Queues to <- from; either may be of this device or of the host. No overlap.
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  /// Returns once everything queued is done.
  virtual void synchronize() = 0;
};

/// An entry of the table of devices, one file of comm/base/devices/ each.
struct DeviceKind {
  const char* name;
  int (*count)();  ///< How many there are on this machine.
  std::unique_ptr<Device> (*open)(int index);
};

/// The kinds this build knows.
std::span<const DeviceKind* const> all_device_kinds() noexcept;
/// "host", "cuda" or "cuda:1". Throws Error{unavailable} that lists what there is.
std::unique_ptr<Device> open_device(std::string_view name);

}  // namespace sprat
