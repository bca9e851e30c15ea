// What a lane gives to its device: copies on two streams, with words between them and the host.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "device/operation.hpp"
#include "device/slab.hpp"
#include "device/words.hpp"
#include "sprat/device.hpp"

namespace sprat::device {

using Operation = DeviceWork::State;

/// A chunk of an operation on its way: its inputs are copied in, it is started on the host, its
/// outputs are copied out. Flights have numbers, and keep their order in each of these.
struct Flight {
  Flight* next = nullptr;
  Flight* next_ended = nullptr;  ///< It has ended on the host while it stands in another line.
  Operation* operation = nullptr;
  Chunk chunk;
  std::uint32_t number = 0;
  std::byte* memory = nullptr;
  bool landed = false;         ///< The host's part is over.
  std::optional<Work> work;    ///< Of what is one Work.
  std::optional<Error> error;  ///< What a DeviceCall's `begin` told.
};

/// Three words by which the device and the lane's thread tell each other how many flights are how
/// far. They count on for ever, and wrap.
struct LaneWords {
  std::uint32_t* arrived = nullptr;  ///< The device: inputs are in host memory.
  std::uint32_t* landed = nullptr;   ///< The thread: outputs are in host memory.
  std::uint32_t* retired = nullptr;  ///< The device: outputs are in its memory.
};

/// One thread at a time, but for counts() and idle().
class DeviceQueue {
 public:
  DeviceQueue(std::shared_ptr<Device> device, std::size_t slab_bytes);
  /// Waits for the streams, and lets go of them.
  void close() noexcept;

  /// What is queued from here on has its inputs from behind what `stream` holds.
  void follow(Operation& operation, DeviceStream stream);
  /// Gives the flight its number and memory, and queues all of its way.
  void queue(Flight& flight, bool is_last);

  const LaneWords& counts() const noexcept { return counts_; }
  std::uint32_t queued() const noexcept { return queued_; }
  std::uint32_t* word(std::size_t index) const noexcept;
  /// Throws what failed in the streams.
  void look() const;

 private:
  const std::shared_ptr<Device> device_;
  Slab slab_;
  DeviceStream in_ = nullptr, out_ = nullptr;
  std::unique_ptr<WordPage> words_;
  LaneWords counts_;
  std::uint32_t queued_ = 0;  ///< The number of the next flight.
};

/// Calls `copy(device's, host's, bytes)` for each block of the chunk; once for all if they lie
/// beside each other on both sides. `begin`: of the operand's stand-in.
template <class Copy>
void for_each_block(const Operand& operand, std::byte* begin, const Chunk& chunk,
                    const Copy& copy) {
  const std::size_t bytes = operand.size * chunk.count;
  std::byte* const host = begin + operand.offset + operand.first_block * bytes;
  std::byte* const memory = operand.memory + chunk.first * operand.size;
  if (operand.blocks > 1 && operand.stride == bytes) {
    return copy(memory, host, bytes * operand.blocks);
  }
  for (std::size_t block = 0; block < operand.blocks && bytes > 0; ++block) {
    copy(memory + block * operand.stride, host + block * bytes, bytes);
  }
}

}  // namespace sprat::device
