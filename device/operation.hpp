// One operation of a lane, from its call until nobody has a handle of it any more.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "device/chunks.hpp"
#include "sprat/device.hpp"

namespace sprat::device {

class LaneCore;

/// Memory of the caller's: blocks of equal length, of which a chunk has a range each.
struct Operand {
  std::byte* memory = nullptr;
  std::size_t blocks = 0;
  std::size_t stride = 0;       ///< Bytes from a block to the next one.
  std::size_t size = 0;         ///< Bytes of an element.
  std::size_t first_block = 0;  ///< Of the stand-in's blocks, which its first block is.
  std::size_t offset = 0;       ///< Bytes, of the stand-in in the operation's piece of memory.
  bool of_host = false;         ///< Copied by the lane's thread, not by the device.
};

/// How a collective is started on the host: its arguments but for the memory.
struct CollectiveTerms {
  using Start = Work(Communicator& communicator, const CollectiveTerms& terms, std::byte* in,
                     std::byte* out, std::size_t count);
  Start* start = nullptr;  ///< Null: the operation is a DeviceCall.
  DType in = DType::u8, out = DType::u8;
  Reduction op;
  int peer = 0;  ///< Root, destination or source.
  int tag = 0;
  Options options;
};

}  // namespace sprat::device

namespace sprat {

/// Its lane's thread changes it, but for what says otherwise. Kept and used again when its last
/// holder, the lane or a handle, lets go.
class DeviceWork::State {
 public:
  std::atomic<int> holders = 0;
  std::shared_ptr<device::LaneCore> core;  ///< While there are holders: handles may outlive a lane.
  State* next = nullptr;                   ///< In the line that it stands in.
  DeviceEvent came = nullptr;              ///< The caller's stream has come to the call.
  std::uint32_t* word = nullptr;           ///< Reaches `value` when the operation is done.
  std::uint32_t value = 0;

  // Set by the call.
  const char* name = "";
  device::CollectiveTerms terms;
  DeviceCall call;
  std::vector<device::Operand> inputs, outputs;
  std::vector<const void*> host_inputs;  ///< Of a DeviceCall: its stand-ins.
  std::vector<void*> host_outputs;
  device::Chunks chunks{{}, 0};

  std::size_t flights = 0;  ///< How many chunks are on their way, ended or not.
  std::size_t retired = 0;  ///< How many have ended.
  bool failed = false;      ///< `error` is set.

  // Guarded by the lane's mutex.
  std::optional<Error> error;
  bool finished = false;
  std::function<void()> notice;
};

}  // namespace sprat
