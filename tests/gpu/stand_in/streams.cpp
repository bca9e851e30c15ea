#include "tests/gpu/stand_in/streams.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

namespace stand_in {
namespace {

std::atomic<std::uint64_t> seed_of_delays = 0, waits = 0, streams_made = 0;
std::atomic<int> most_delay = 0, least_operator = 0;
std::atomic<bool> tracing = false;
std::mutex trace_mutex;
std::vector<Ran> trace;  // guarded by trace_mutex

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// SplitMix64's finaliser.
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

void delay(std::uint64_t stream, std::uint64_t turn) {
  const std::uint64_t seed = seed_of_delays.load();
  const int most = most_delay.load();
  if (seed == 0 || most == 0) {
    return;
  }
  const std::uint64_t drawn = mixed(seed + 0x9e3779b97f4a7c15u * (stream * 1000003 + turn));
  if (drawn % 4 == 0) {
    std::this_thread::sleep_for(
        std::chrono::microseconds((drawn >> 8) % static_cast<std::uint64_t>(most)));
  }
}

/// All of the process. Never destroyed: their threads run until it ends.
struct All {
  std::mutex mutex;
  std::array<std::vector<Stream*>, devices> of;
  std::array<Stream*, devices> first{};
  std::array<std::vector<Stream*>, devices> pool;
  std::size_t turn = 0;
};

All& all() {
  static All* made = new All;
  return *made;
}

thread_local int device_here = 0;
thread_local std::array<Stream*, devices> streams_here{};

}  // namespace

std::uint64_t Event::record() {
  const std::lock_guard lock(mutex_);
  return ++recorded_;
}

void Event::reach(std::uint64_t version) {
  {
    const std::lock_guard lock(mutex_);
    reached_ = std::max(reached_, version);
  }
  changed_.notify_all();
}

std::uint64_t Event::newest() {
  const std::lock_guard lock(mutex_);
  return recorded_;
}

bool Event::reached(std::uint64_t version) {
  const std::lock_guard lock(mutex_);
  return reached_ >= version;
}

void Event::wait(std::uint64_t version) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return reached_ >= version; });
}

Stream::Stream(int device, std::uint64_t number) : device_(device), number_(number) {
  std::thread([this] { work(); }).detach();
}

void Stream::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

void Stream::queue(const char* name, std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back({name, now(), std::move(task)});
  changed_.notify_all();
}

bool Stream::idle() {
  const std::lock_guard lock(mutex_);
  if (failed_) {
    std::rethrow_exception(failed_);
  }
  return tasks_.empty() && !running_;
}

void Stream::synchronize() {
  count_host_wait();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return tasks_.empty() && !running_; });
  if (failed_) {
    std::rethrow_exception(failed_);
  }
}

void Stream::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closed_ || !tasks_.empty(); });
    if (tasks_.empty()) {
      return;
    }
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    running_ = true;
    const std::uint64_t turn = ++turns_;
    lock.unlock();
    delay(number_, turn);
    run(task);
    task.run = nullptr;  // what it holds is freed without the lock
    lock.lock();
    running_ = false;
    changed_.notify_all();
  }
}

void Stream::run(Task& task) {
  const std::int64_t began = now();
  bool failed = false;
  {
    const std::lock_guard lock(mutex_);
    failed = failed_ != nullptr;
  }
  // As on a device nothing runs in a stream that has failed. Its events are still reached: a device
  // would fail who waits for them, too.
  if (failed && task.name != "event") {
    return;
  }
  try {
    task.run();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failed_ = std::current_exception();
  }
  if (tracing.load()) {
    const std::lock_guard lock(trace_mutex);
    trace.push_back({task.name, number_, task.queued, began, now()});
  }
}

Stream* make_stream(int device) {
  auto* stream = new Stream(device, ++streams_made);
  const std::lock_guard lock(all().mutex);
  all().of.at(static_cast<std::size_t>(device)).push_back(stream);
  return stream;
}

Stream* default_stream(int device) {
  static std::array<std::once_flag, devices> once;
  const auto at = static_cast<std::size_t>(device);
  std::call_once(once.at(at), [&] { all().first.at(at) = make_stream(device); });
  return all().first.at(at);
}

Stream* pool_stream(int device) {
  constexpr std::size_t most = 4;
  const auto at = static_cast<std::size_t>(device);
  std::unique_lock lock(all().mutex);
  std::vector<Stream*>& pool = all().pool.at(at);
  if (pool.size() == most) {
    return pool[all().turn++ % most];
  }
  lock.unlock();
  Stream* stream = make_stream(device);
  lock.lock();
  pool.push_back(stream);
  return stream;
}

int current_device() { return device_here; }

void set_current_device(int device) { device_here = device; }

Stream* current_stream(int device) {
  Stream*& here = streams_here.at(static_cast<std::size_t>(device));
  return here = here != nullptr ? here : default_stream(device);
}

void set_current_stream(Stream* stream) {
  streams_here.at(static_cast<std::size_t>(stream->device())) = stream;
}

void synchronize_device(int device) {
  std::vector<Stream*> streams;
  {
    const std::lock_guard lock(all().mutex);
    streams = all().of.at(static_cast<std::size_t>(device));
  }
  for (Stream* stream : streams) {
    stream->synchronize();
  }
}

void set_delays(std::uint64_t seed, int microseconds) {
  seed_of_delays = seed;
  most_delay = microseconds;
}

void set_operator_time(int microseconds) { least_operator = microseconds; }
int operator_time() { return least_operator.load(); }

void start_trace() {
  const std::lock_guard lock(trace_mutex);
  trace.clear();
  tracing = true;
}

std::vector<Ran> take_trace() {
  tracing = false;
  const std::lock_guard lock(trace_mutex);
  return std::move(trace);
}

std::uint64_t host_waits() { return waits.load(); }
void count_host_wait() { ++waits; }

}  // namespace stand_in
