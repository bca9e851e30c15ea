// Streams that are threads of the host: tasks run in order, each after a delay that a seed draws.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace stand_in {

constexpr int devices = 2;

/// A mark in a stream. Recording it again makes a new version; who waits, waits for the version
/// that was the newest when it asked.
class Event {
 public:
  std::uint64_t record();
  void reach(std::uint64_t version);
  std::uint64_t newest();
  bool reached(std::uint64_t version);
  /// Blocks the calling thread.
  void wait(std::uint64_t version);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t recorded_ = 0, reached_ = 0;
};

/// What ran, in microseconds of one clock.
struct Ran {
  std::string name;
  std::uint64_t stream;
  std::int64_t queued, began, ended;
};

class Stream {
 public:
  Stream(int device, std::uint64_t number);
  /// Tasks that are queued are still done; the thread ends by itself.
  void close();

  void queue(const char* name, std::function<void()> task);
  bool idle();
  /// Blocks the calling thread until all that is queued is done. Throws what a task has thrown,
  /// which every later call does too.
  void synchronize();
  int device() const { return device_; }
  std::uint64_t number() const { return number_; }

 private:
  struct Task {
    std::string name;
    std::int64_t queued;
    std::function<void()> run;
  };
  void work();
  void run(Task& task);

  const int device_;
  const std::uint64_t number_;
  std::mutex mutex_;  ///< Guards the rest.
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::uint64_t turns_ = 0;
  std::exception_ptr failed_;
  bool running_ = false, closed_ = false;
};

/// Streams live as long as the process; closed ones keep their place.
Stream* make_stream(int device);
Stream* default_stream(int device);
/// Of a small pool of the device, in turn.
Stream* pool_stream(int device);
/// The calling thread's.
int current_device();
void set_current_device(int device);
Stream* current_stream(int device);
void set_current_stream(Stream* stream);
/// Blocks until every stream of the device has done what is queued.
void synchronize_device(int device);

/// Delays are drawn from the seed, a stream's number and a task's turn: up to `microseconds`, for
/// one task in four. A seed of 0 delays nothing.
void set_delays(std::uint64_t seed, int microseconds);
/// Every operator takes at least as long.
void set_operator_time(int microseconds);
int operator_time();

void start_trace();
std::vector<Ran> take_trace();
/// How often a thread of the host has waited for a stream, an event or a device so far.
std::uint64_t host_waits();
void count_host_wait();

}  // namespace stand_in
