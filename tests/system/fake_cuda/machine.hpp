// The machine behind the stand-in: devices whose memory is the host's, streams that are threads.
//
// It makes no claim of speed, and checks what a real device would punish later: memory that was
// freed, words in memory that is not pinned, events of another device, calls from host functions.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <vector>

namespace fake_cuda {

// The driver's numbers.
enum Code : int {
  success = 0,
  invalid_value = 1,
  out_of_memory = 2,
  invalid_context = 201,
  invalid_handle = 400,
  not_ready = 600,
  illegal_address = 700,
  already_registered = 712,
  not_registered = 713,
  not_permitted = 800,
  capture_unsupported = 900,
};

enum class Kind { device, managed, pinned };

/// A piece of memory that the driver knows.
struct Piece {
  std::size_t bytes = 0;
  Kind kind = Kind::device;
  int device = 0;
  bool ours = false;  ///< Allocated here, not registered.
};

/// How far a stream is; outlives it, for events.
struct Progress {
  std::uint64_t queued = 0, done = 0;
};

class Stream;

/// Also its context: there is one a device.
struct FakeDevice {
  int index = 0;
  int broken = success;              ///< What all calls return.
  int locked = 0;                    ///< Copies that wait, and keep other threads out.
  std::unique_ptr<Stream> standard;  ///< The default stream.
};

struct Event {
  int device = 0;
  std::shared_ptr<Progress> progress;  ///< Null: never recorded.
  std::uint64_t number = 0;            ///< Reached when as many are done.
};

/// Work of a stream: returns a code, with which the device breaks unless it is success.
using Task = std::function<int()>;

/// Whether a condition is met; asked with the machine's mutex held.
using Condition = std::function<bool()>;

class Machine {
 public:
  static Machine& get();

  /// 0, or what a call of this thread has to return at once.
  int enter();
  FakeDevice* current();                 ///< Null: this thread has none.
  std::vector<FakeDevice*>& contexts();  ///< The calling thread's.
  FakeDevice* device(int index);
  int device_count() const { return static_cast<int>(devices_.size()); }

  Stream* make_stream(FakeDevice& device, bool blocking);
  int destroy_stream(Stream* stream);
  /// The stream that a handle names on the current device; null if it is of another one.
  Stream* stream(void* handle);
  /// Queues behind what is there, and behind what default streams make it wait for.
  int queue(Stream& stream, Task task);
  int wait_for(Stream& stream);
  int wait_for_all(const FakeDevice& device);
  int done(const Stream& stream);  ///< success or not_ready, as reached().
  bool capturing(const Stream& stream);
  int capture(Stream& stream, bool on);

  int record(Event& event, Stream& stream);
  int wait_event(Stream& stream, const Event& event);
  int reached(const Event& event);
  int wait_for(const Event& event);

  int allocate(void** memory, std::size_t bytes, Kind kind);
  int release(void* memory);
  int pin(void* memory, std::size_t bytes);
  int unpin(void* memory);
  /// The piece that holds all of this; null if none does.
  const Piece* find(const void* memory, std::size_t bytes);
  int copy(Stream& stream, void* to, const void* from, std::size_t bytes);

  void seed(unsigned seed);
  void refuse_copy(int n);
  void break_at_copy(int n);
  void mend();
  void lock_in_waits(bool on);
  int waits();
  int pieces();

  /// Waits, as a task of a stream, until `met`, the machine ends, or the device breaks.
  void await(const FakeDevice& device, const Condition& met);
  bool over(const FakeDevice& device);
  static bool& in_host_function();

 private:
  friend class Stream;
  Machine();
  int copy_now(FakeDevice& device, void* to, const void* from, std::size_t bytes);
  const Piece* find_locked(const void* memory, std::size_t bytes) const;

  std::mutex mutex_;  ///< Guards everything, the streams' queues too.
  std::condition_variable changed_;
  std::vector<std::unique_ptr<FakeDevice>> devices_;
  std::set<Stream*> streams_;
  std::vector<std::unique_ptr<Stream>> ended_;  ///< Destroyed, and perhaps still at work.
  std::map<std::uintptr_t, Piece> pieces_;
  unsigned seed_ = 0, streams_made_ = 0;
  int refuse_ = 0, break_ = 0, waits_ = 0;
  std::atomic<bool> lock_in_waits_ = false;
};

class Stream {
 public:
  Stream(Machine& machine, FakeDevice& device, bool blocking, unsigned seed);
  /// Ends when the queue is empty.
  void close() { closing_ = true; }

  FakeDevice& device;
  const bool blocking;  ///< Default streams and this one wait for each other.
  bool capturing = false;
  const std::shared_ptr<Progress> progress = std::make_shared<Progress>();

 private:
  friend class Machine;
  void run();
  void dawdle();

  Machine& machine_;
  std::deque<Task> tasks_;
  bool closing_ = false;
  bool idle_ = false;  ///< Its thread, which nobody joins, does not come back to it.
  std::mt19937 random_;
  bool dawdles_;
};

}  // namespace fake_cuda
