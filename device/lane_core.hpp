// The engine of a lane: one thread, two streams, and pinned memory between them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

#include "comm/base/fork.hpp"
#include "device/device_queue.hpp"
#include "device/line.hpp"
#include "device/operation.hpp"
#include "sprat/device.hpp"

namespace sprat::device {

using EndedFlights = Line<Flight, &Flight::next_ended>;

/// The way of an operation: its caller queues all of it, copies in on one stream, copies out behind
/// a word on the other one. The lane's thread starts what has *arrived*, and writes the word when
/// it has *landed*; when its outputs have left it is *retired*. That thread never calls the device:
/// a caller may be in the driver, in a copy that waits behind this very operation, and hold the
/// driver's lock while the thread would wait for it.
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
  Operation* spare_operation();
  void note_end(Flight* flight);

  // The caller's, and the watch's.
  Flight* new_flight();

  // The thread's.
  void run();
  bool words_moved() const;
  std::optional<EndedFlights> listen();
  void start_arrived();
  void start(Flight* flight);
  void start_on_host(Flight* flight);
  void start_call(Flight* flight);
  void land(Flight* flight);
  void tell_landed(const Flight& flight);
  void retire_left();
  void retire(Flight* flight);
  bool is_broken();
  void give_up(std::chrono::steady_clock::time_point since);
  void revoke(std::string_view why);
  void fail(Operation& operation, const Error& error);

  void watch_streams();

  // Set once.
  Communicator& communicator_;
  const std::shared_ptr<Device> device_;  ///< Shared: pages of words outlive the lane.
  const LaneOptions options_;
  const comm::ProcessMark process_;

  std::mutex order_;  ///< One caller at a time queues.
  DeviceQueue queue_;

  std::mutex mutex_;  ///< Guards what follows. No call of the device is made in it.
  std::condition_variable heard_, finished_, watched_;
  Line<Flight> posted_, spare_flights_;
  EndedFlights ended_;
  std::deque<Flight> flights_;
  std::deque<Operation> operations_;
  Line<Operation> spare_;  ///< Operations that nobody holds.
  std::size_t active_ = 0;
  bool woken_ = false, stopping_ = false;
  std::optional<Error> broken_;  ///< The device's: nothing is queued any more.

  // The thread's own.
  Line<Flight> coming_, flying_, leaving_;
  std::thread thread_, watch_;
};

}  // namespace sprat::device
