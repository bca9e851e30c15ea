// Devices with memory and streams of their own, and operations on their memory that never block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sprat/buffer.hpp"
#include "sprat/communicator.hpp"
#include "sprat/error.hpp"
#include "sprat/export.hpp"
#include "sprat/reduction.hpp"

namespace sprat {

/// A queue of work in the device's own terms: a cudaStream_t. Null: the device's default stream.
using DeviceStream = void*;
/// A mark in a stream, in the device's own terms: a cudaEvent_t.
using DeviceEvent = void*;

/// Whose memory a pointer points to.
enum class MemoryKind : std::uint8_t {
  host,     ///< The host's, pinned or not.
  device,   ///< A device's.
  managed,  ///< The driver moves it between host and device.
};
/// What a pointer points to.
struct DeviceMemory {
  MemoryKind kind = MemoryKind::host;
  int index = -1;  ///< Which device; -1: none in particular.
};

/// What Sprat needs of a device: verbs that are queued in a stream and done in its order.
/// Any thread. Each verb makes the device current where its API wants that, and leaves the calling
/// thread's current device as it was. No verb that takes a stream waits for the device, but
/// synchronize(). Errors throw Error{unavailable} with the device's own words.
class SPRAT_API Device {
 public:
  virtual ~Device() = default;
  /// "cuda:0 (NVIDIA H200)".
  virtual const std::string& name() const noexcept = 0;
  virtual int index() const noexcept = 0;

  /// Uninitialised memory of this device, aligned to at least 64 bytes. May wait for the device.
  virtual void* allocate(std::size_t bytes) = 0;
  /// `memory` is from allocate(), and no work on it is queued. Null is allowed. May wait.
  virtual void free(void* memory) noexcept = 0;
  /// Whose memory this is. What the device does not know is the host's.
  virtual DeviceMemory memory_of(const void* pointer) = 0;
  /// Lets the device copy from and to host memory in stream order, and wait for words in it. May
  /// wait for the device.
  virtual void pin(void* memory, std::size_t bytes) = 0;
  virtual void unpin(void* memory) noexcept = 0;

  /// A stream that no default stream waits for.
  virtual DeviceStream make_stream() = 0;
  /// Work that is queued is still done.
  virtual void destroy_stream(DeviceStream stream) noexcept = 0;
  /// Returns once everything queued in the stream is done. Throws what failed in it.
  virtual void synchronize(DeviceStream stream) = 0;
  /// True once everything queued in the stream is done. Throws what failed in it.
  virtual bool idle(DeviceStream stream) = 0;
  /// True while the stream's work is recorded into a graph instead of done.
  virtual bool capturing(DeviceStream stream) = 0;

  virtual DeviceEvent make_event() = 0;
  virtual void destroy_event(DeviceEvent event) noexcept = 0;
  /// The event is reached once everything queued in the stream so far is done.
  virtual void record(DeviceEvent event, DeviceStream stream) = 0;
  /// What is queued in the stream from here on waits for the event as it was last recorded.
  virtual void wait(DeviceStream stream, DeviceEvent event) = 0;
  virtual bool reached(DeviceEvent event) = 0;

  /// Queues to <- from; each is this device's, or pinned or managed memory. No overlap. Memory of
  /// the host that is not pinned may make the call wait.
  virtual void copy(DeviceStream stream, void* to, const void* from, std::size_t bytes) = 0;
  /// Queues a store to a word in pinned memory; all that was queued before is seen by who sees it.
  virtual void write_word(DeviceStream stream, std::uint32_t* word, std::uint32_t value) = 0;
  /// What is queued from here on waits until the word in pinned memory has reached `value`:
  /// static_cast<std::int32_t>(*word - value) >= 0. Host or device may write it.
  virtual void wait_word(DeviceStream stream, const std::uint32_t* word, std::uint32_t value) = 0;
  /// Queues a call on a thread of the device's. The function must not block, throw or call the
  /// device; it is not called if the stream fails before it.
  virtual void notify(DeviceStream stream, void (*function)(void*), void* argument) = 0;
};

/// An entry of the table of devices.
struct DeviceKind {
  const char* name;
  int (*count)();    ///< How many there are on this machine; 0 without a driver.
  int (*current)();  ///< The calling thread's current one; -1: none yet.
  std::shared_ptr<Device> (*open)(int index);
};

/// The kinds that Sprat brings: cuda, whose driver (libcuda.so.1, or the file that
/// SPRAT_CUDA_DRIVER names) is loaded when it is first asked for.
SPRAT_API std::span<const DeviceKind* const> all_device_kinds() noexcept;
/// "cuda" or "cuda:1". Throws Error{unavailable} that lists what there is, and why not.
SPRAT_API std::shared_ptr<Device> open_device(std::string_view name);

/// Memory of an operation as a device sees it: the device's, managed or the host's.
struct DeviceBuffer {
  void* data = nullptr;
  std::size_t bytes = 0;
};
/// The same, only read.
struct ConstDeviceBuffer {
  const void* data = nullptr;
  std::size_t bytes = 0;
};

/// One operation by way of host memory that stands for the device's.
struct DeviceCall {
  using Inputs = std::span<const void* const>;
  using Outputs = std::span<void* const>;
  /// To be called once, from any thread, when what was started has ended; with why if it failed.
  using Ended = std::function<void(std::optional<Error> error)>;

  /// An output that has an input's pointer has that input's stand-in: in place stays in place. It
  /// is no longer than the input.
  /// Stand-ins are aligned to 256 bytes, and there until the operation has ended. Lists are copied.
  std::span<const ConstDeviceBuffer> inputs = {};
  std::span<const DeviceBuffer> outputs = {};
  /// What comes before in this stream is in the inputs, and is done with the outputs.
  DeviceStream stream = nullptr;
  const char* name = "";  ///< For errors; a literal.
  /// Starts the operation on the stand-ins, which are in the order of the lists, and returns
  /// without waiting for other ranks. Called once, on the lane's thread, in the order of calls.
  std::function<Work(Inputs, Outputs)> start = {};
  /// In the place of `start`, for what is not one Work: it sees to it that `Ended` is called, or
  /// throws.
  std::function<void(Inputs, Outputs, Ended)> begin = {};
};

/// An operation that a lane carries out. A handle: copies are of one operation; dropping it does
/// not cancel it. It may outlive its lane. Any thread.
class SPRAT_API DeviceWork {
 public:
  class State;

  DeviceWork() noexcept = default;  ///< Already done.
  explicit DeviceWork(State* state) noexcept;
  DeviceWork(const DeviceWork& other) noexcept;
  DeviceWork(DeviceWork&& other) noexcept;
  DeviceWork& operator=(DeviceWork other) noexcept;
  ~DeviceWork();

  /// What is queued in `stream` from here on waits for the operation's outputs, or for its failure.
  /// Blocks no thread of the host and allocates nothing. Throws the Error of an operation that has
  /// failed already.
  void wait(DeviceStream stream);
  /// Blocks until done; throws the operation's Error.
  void synchronize();
  /// True once the outputs are there, or it has failed. Never blocks, calls no driver.
  bool done() const noexcept;
  /// Of an operation that has failed: why. Never blocks.
  std::optional<Error> failure() const;
  /// Calls `notice` once when done, well or not: at once if it is, else from a thread of the
  /// lane's, which may queue work on devices there. It must not block or throw. Once a work.
  void on_done(std::function<void()> notice);

 private:
  State* state_ = nullptr;  ///< Counted.
};

/// Equal on all ranks of a lane's communicator.
struct LaneOptions {
  /// Pinned memory of the lane. Operations that find no room wait for earlier ones, in order, in
  /// streams of the lane's. One that needs more than all makes it grow, which takes milliseconds.
  std::size_t slab_bytes = 32u << 20;
  /// Collectives of more than this go in chunks, so that copies and ranks work at the same time.
  std::size_t chunk_bytes = 4u << 20;
};

/// Operations of one communicator on memory of one device, in the order of the calls, each in the
/// order of its caller's stream. No call blocks, and none allocates once as many were under way
/// before: inputs are copied to pinned memory, which peers read in place, behind what the stream
/// holds; a thread of the lane's starts the operation there; outputs are copied back, in the order
/// of the calls. All ranks call the lanes of their communicators: chunks are cut alike on all.
/// Any thread; calls serialise. Memory may be the device's, managed or the host's; another
/// device's, and streams that are captured into a graph, are Error{invalid_argument}. Zero elements
/// are legal. Later errors are in DeviceWork: they are told to every stream that waits. What cannot
/// start on the host revokes the communicator, so that peers hear of it; an error of the device
/// does so too, and ends the lane.
/// Operations that need each other, such as a send and a receive of one exchange, belong in one
/// run(): of two, the second may wait for memory that the first one has.
class SPRAT_API DeviceLane {
 public:
  /// `communicator` is this lane's alone (Communicator::duplicate() makes one) and outlives it.
  DeviceLane(Communicator& communicator, std::shared_ptr<Device> device, LaneOptions options = {});
  /// Waits until all operations have ended.
  ~DeviceLane();
  DeviceLane(const DeviceLane&) = delete;
  DeviceLane& operator=(const DeviceLane&) = delete;

  Device& device() noexcept;
  /// Blocks until all that was called has ended, well or not.
  void settle();

  /// Any operation, whole.
  DeviceWork run(DeviceCall call);

  // As Communicator's of the same name, which say what is legal; `stream` is the caller's.
  DeviceWork all_reduce(ConstElements in, Elements out, const Reduction& op, DeviceStream stream,
                        Options options = {});
  DeviceWork all_gather(ConstElements part, Elements whole, DeviceStream stream,
                        Options options = {});
  DeviceWork reduce_scatter(ConstElements whole, Elements part, const Reduction& op,
                            DeviceStream stream, Options options = {});
  DeviceWork broadcast(ConstElements in, Elements out, int root, DeviceStream stream,
                       Options options = {});
  DeviceWork all_to_all(ConstElements in, Elements out, DeviceStream stream, Options options = {});
  DeviceWork reduce(ConstElements in, Elements out, int root, const Reduction& op,
                    DeviceStream stream, Options options = {});
  DeviceWork gather(ConstElements part, Elements whole, int root, DeviceStream stream,
                    Options options = {});
  DeviceWork scatter(ConstElements whole, Elements part, int root, DeviceStream stream,
                     Options options = {});
  DeviceWork send(ConstElements data, int to, int tag, DeviceStream stream, Options options = {});
  DeviceWork recv(Elements data, int from, int tag, DeviceStream stream, Options options = {});
  /// Outputs nothing: the stream that waits for it has met all ranks' streams.
  DeviceWork barrier(DeviceStream stream, Options options = {});

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sprat
