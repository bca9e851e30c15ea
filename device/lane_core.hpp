// The engine of a lane: one thread, two streams, and pinned memory between them.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "comm/base/fork.hpp"
#include "device/line.hpp"
#include "device/operation.hpp"
#include "device/slab.hpp"
#include "device/words.hpp"
#include "sprat/device.hpp"

namespace sprat::device {

using Operation = DeviceWork::State;

/// A chunk of an operation on its way: its inputs are copied in, it is started on the host, its
/// outputs are copied out. It stands in one of the lane's lines, or is under way on the host.
struct Flight {
  Flight* next = nullptr;
  Operation* operation = nullptr;
  Chunk chunk;
  std::byte* memory = nullptr;  ///< Null: there was none to be had, and the operation has failed.
  std::size_t bytes = 0;
  std::optional<Work> work;    ///< Of what is one Work.
  std::optional<Error> error;  ///< What a DeviceCall's `begin` told.
};

/// The way of an operation: taken and filled by its caller, who records an event in its stream and
/// leaves it in the inbox. All else is the lane's thread's, which alone calls the device:
/// *admitted* when there is memory, *started* when its inputs have arrived, *landed* when the
/// host's part has ended, *retired* when its outputs have left. Functions that the device calls
/// only count, and wake the thread.
class LaneCore : public std::enable_shared_from_this<LaneCore> {
 public:
  LaneCore(Communicator& communicator, std::shared_ptr<Device> device, const LaneOptions& options);
  ~LaneCore();

  /// Starts the thread. Once, when a shared_ptr has this.
  void begin();
  /// Waits for all operations, ends the thread, lets go of the device.
  void end() noexcept;

  Device& device() const noexcept { return *device_; }
  Communicator& communicator() const noexcept { return communicator_; }
  const LaneOptions& options() const noexcept { return options_; }

  // Any thread.
  /// An operation to be filled, with one holder. Throws Error{invalid_argument} if the stream is
  /// captured.
  Operation* open(DeviceStream stream, const char* name);
  /// Memory of the caller's to copy from or to. Throws Error{invalid_argument} if it is of another
  /// device.
  Operand operand(const void* memory, std::size_t bytes, const char* name);
  /// Posts a filled operation behind what the stream holds. If it throws, nothing is posted.
  void post(Operation& operation, DeviceStream stream);
  void hold(Operation& operation) noexcept { operation.holders.fetch_add(1); }
  void let_go(Operation* operation) noexcept;
  void wait(Operation& operation, DeviceStream stream);
  void synchronize(Operation& operation);
  std::optional<Error> failure(const Operation& operation);
  void on_done(Operation& operation, std::function<void()> notice);
  void settle();

 private:
  /// What the thread has heard of since it last looked.
  struct News {
    std::size_t arrived = 0, left = 0;  ///< Flights whose copies are done, in their lines' order.
    Line<Flight> ended;                 ///< The host's part is over.
    Line<Operation> posted;
    bool any() const { return arrived > 0 || left > 0 || !ended.empty() || !posted.empty(); }
  };

  Operation* spare_operation();
  static void note_arrival(void* core);
  static void note_departure(void* core);
  void note_end(Flight* flight);

  void run();
  std::optional<News> next_news();
  void watch_streams();
  void admit();
  void admit_chunk(Operation& operation, std::byte* memory, const ChunkMemory& layout);
  void start(Flight* flight);
  void start_call(Flight* flight);
  void land(Flight* flight);
  void queue_outputs(const Flight& flight);
  void retire(Flight* flight);
  void finish_if_over(Operation& operation);
  void fail(Operation& operation, const Error& error);
  void fail_for_all(Operation& operation, const Error& error);
  void break_down(const Error& error);
  Flight* new_flight();

  // Set once.
  Communicator& communicator_;
  const std::shared_ptr<Device> device_;  ///< Shared: pages of words outlive the lane.
  const LaneOptions options_;
  const comm::ProcessMark process_;
  DeviceStream in_ = nullptr, out_ = nullptr;
  std::unique_ptr<WordPage> words_;

  std::mutex mutex_;  ///< Guards what follows.
  std::condition_variable heard_, finished_;
  News news_;
  std::deque<Operation> operations_;
  Line<Operation> spare_;  ///< Operations that nobody holds.
  std::size_t active_ = 0;
  bool stopping_ = false;

  // The thread's own.
  std::unique_ptr<Slab> slab_;
  std::deque<Flight> flights_;
  Line<Flight> spare_flights_, copying_, leaving_;
  Line<Operation> waiting_;  ///< Not all admitted.
  std::optional<Error> broken_;
  std::thread thread_;
};

}  // namespace sprat::device
