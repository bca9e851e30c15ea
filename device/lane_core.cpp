#include "device/lane_core.hpp"

#include <chrono>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "comm/base/thread.hpp"

namespace sprat::device {
namespace {

/// A page of words has room for them, and for the lane's own.
constexpr std::size_t most_operations = WordPage::words - 16;
/// A stream that fails tells nothing any more, so streams with work are looked at this often.
constexpr std::chrono::milliseconds silence{100};
/// What a device that refused a call is given to end the copies that it has.
constexpr std::chrono::milliseconds last_copies{300};
/// Words that a device writes wake nobody, so the thread looks at them: without sleeping for a
/// while after it has found something, which is when the next is near, then this often.
constexpr std::chrono::microseconds looks_on{500}, nap{100};

/// For cores that something may still look at when they are over.
void keep_forever(std::shared_ptr<LaneCore> core) {
  struct Kept {
    std::mutex mutex;
    std::vector<std::shared_ptr<LaneCore>> cores;
  };
  static auto* const kept = new Kept;  // never destroyed, as what it keeps
  const std::lock_guard lock(kept->mutex);
  kept->cores.push_back(std::move(core));
}

const LaneOptions& checked(const LaneOptions& options) {
  require(options.chunk_bytes > 0 && options.chunk_bytes * 2 <= options.slab_bytes,
          "a lane's slab of ", options.slab_bytes, " bytes must hold two chunks of ",
          options.chunk_bytes);
  return options;
}

Error unexpected(const std::exception& error) { return Error(ErrorCode::internal, error.what()); }

}  // namespace

LaneCore::LaneCore(Communicator& communicator, std::shared_ptr<Device> device,
                   const LaneOptions& options)
    : communicator_(communicator),
      device_(std::move(device)),
      options_(checked(options)),
      queue_(device_, options.slab_bytes) {}

LaneCore::~LaneCore() {
  for (const Operation& operation : operations_) {
    if (operation.came != nullptr) {
      device_->destroy_event(operation.came);
    }
  }
}

void LaneCore::begin() {
  thread_ = start_thread("the thread of a device lane", [this] { run(); });
  watch_ = start_thread("the watch of a device lane", [this] { watch_streams(); });
}

void LaneCore::end() noexcept {
  // A child of fork() has neither the thread nor the device: what is there stays as it is.
  if (!process_.here()) {
    thread_.detach();
    watch_.detach();
    keep_forever(shared_from_this());
    return;
  }
  settle();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  heard_.notify_one();
  watched_.notify_one();
  thread_.join();
  watch_.join();
  queue_.close();
}

Operation* LaneCore::open(DeviceStream stream, const char* name) {
  require(!device_->capturing(stream), name,
          " on a stream that is being captured into a graph: Sprat's operations run on the host, ",
          "and a graph cannot hold them; call it outside the capture");
  Operation* const operation = spare_operation();
  // Not in the lock, for which functions that the device calls wait.
  if (operation->came == nullptr) {
    try {
      operation->came = device_->make_event();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      spare_.push(operation);
      throw;
    }
  }
  operation->name = name;
  operation->holders.store(1);
  operation->core = shared_from_this();
  operation->inputs.clear();
  operation->outputs.clear();
  operation->terms.start = nullptr;
  operation->retired = 0;
  operation->failed = operation->finished = false;
  operation->error.reset();
  return operation;
}

Operation* LaneCore::spare_operation() {
  const std::lock_guard lock(mutex_);
  if (Operation* const operation = spare_.pop()) {
    return operation;
  }
  need(operations_.size() < most_operations, "a lane of ", device_->name(), " has ",
       operations_.size(), " operations that are under way or whose DeviceWork is kept; wait for ",
       "some, and let go of their DeviceWork");
  Operation& operation = operations_.emplace_back();
  operation.word = queue_.word(operations_.size() - 1);
  // Words count on from lane to lane.
  operation.value = std::atomic_ref(*operation.word).load(std::memory_order_acquire);
  return &operation;
}

Operand LaneCore::operand(const void* memory, std::size_t bytes, const char* name) {
  Operand operand;
  operand.memory = static_cast<std::byte*>(const_cast<void*>(memory));
  if (bytes > 0) {
    require(memory != nullptr, name, ": memory of ", bytes, " bytes is null");
    const DeviceMemory where = device_->memory_of(memory);
    require(where.kind != MemoryKind::device || where.index == device_->index(), name,
            ": memory of device ", where.index, " on a lane of ", device_->name(),
            "; each device has a lane of its own");
    operand.of_host = where.kind == MemoryKind::host;
  }
  return operand;
}

void LaneCore::post(Operation& operation, DeviceStream stream) {
  const std::lock_guard order(order_);
  {
    const std::lock_guard lock(mutex_);
    if (broken_) {
      throw Error(*broken_);
    }
  }
  queue_.follow(operation, stream);
  hold(operation);  // the lane's
  ++operation.value;
  operation.flights = operation.chunks.size();
  {
    const std::lock_guard lock(mutex_);
    ++active_;
  }
  watched_.notify_one();
  for (std::size_t i = 0; i < operation.chunks.size(); ++i) {
    Flight* const flight = new_flight();
    flight->operation = &operation;
    flight->chunk = operation.chunks[i];
    std::optional<Error> refused;
    try {
      queue_.queue(*flight, i + 1 == operation.chunks.size());
    } catch (const Error& error) {
      refused = error;
    }
    {
      const std::lock_guard lock(mutex_);
      // The thread looks at the number once it knows of the break.
      operation.flights = refused ? i + 1 : operation.flights;
      posted_.push(flight);
      woken_ = true;
      if (refused && !broken_) {
        // What is queued cannot be taken back, so the lane ends, and the operation tells why.
        broken_.emplace(refused->code(), text(operation.name, ": ", refused->what()));
      }
    }
    heard_.notify_one();
    if (refused) {
      return;
    }
  }
}

Flight* LaneCore::new_flight() {
  const std::lock_guard lock(mutex_);
  Flight* const spare = spare_flights_.pop();
  Flight* const flight = spare != nullptr ? spare : &flights_.emplace_back();
  flight->landed = false;
  flight->memory = nullptr;
  return flight;
}

void LaneCore::let_go(Operation* operation) noexcept {
  if (operation->holders.fetch_sub(1) > 1) {
    return;
  }
  // What the caller's functions hold is released outside of the lock: it may call anything.
  operation->call = {};
  operation->terms.op = ReduceOp::sum;
  std::function<void()> notice;
  const std::shared_ptr<LaneCore> core = std::move(operation->core);  // perhaps the last one
  const std::lock_guard lock(mutex_);
  notice.swap(operation->notice);
  spare_.push(operation);
}

void LaneCore::wait(Operation& operation, DeviceStream stream) {
  if (!reached(operation.word, operation.value)) {
    device_->wait_word(stream, operation.word, operation.value);
  } else if (const auto error = failure(operation)) {
    throw *error;
  }
}

void LaneCore::synchronize(Operation& operation) {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return operation.finished; });
  if (operation.error) {
    throw Error(*operation.error);
  }
}

std::optional<Error> LaneCore::failure(const Operation& operation) {
  if (!reached(operation.word, operation.value)) {
    return std::nullopt;
  }
  const std::lock_guard lock(mutex_);
  return operation.error;
}

void LaneCore::on_done(Operation& operation, std::function<void()> notice) {
  {
    const std::lock_guard lock(mutex_);
    if (!operation.finished) {
      operation.notice = std::move(notice);
      return;
    }
  }
  notice();
}

void LaneCore::settle() {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [this] { return active_ == 0; });
}

void LaneCore::note_end(Flight* flight) {
  const std::lock_guard lock(mutex_);
  ended_.push(flight);
  woken_ = true;
  heard_.notify_one();
}

/// Apart from the thread, since a look at the device may wait for a caller that is in the driver.
void LaneCore::watch_streams() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (active_ == 0 || broken_) {
      watched_.wait(lock, [this] { return stopping_ || (active_ > 0 && !broken_); });
      continue;
    }
    if (watched_.wait_for(lock, silence, [this] { return stopping_; })) {
      return;
    }
    lock.unlock();
    std::optional<Error> failed;
    try {
      queue_.look();
    } catch (const Error& error) {
      failed = error;
    }
    lock.lock();
    if (failed && !broken_) {
      broken_ = failed;
      woken_ = true;
      heard_.notify_one();
    }
  }
}

void LaneCore::run() {
  auto well = std::chrono::steady_clock::now();
  while (std::optional<EndedFlights> ended = listen()) {
    start_arrived();
    while (Flight* const flight = ended->pop()) {
      land(flight);
    }
    retire_left();
    if (is_broken()) {
      give_up(well);
    } else {
      well = std::chrono::steady_clock::now();
    }
  }
}

bool LaneCore::is_broken() {
  const std::lock_guard lock(mutex_);
  return broken_.has_value();
}

bool LaneCore::words_moved() const {
  const LaneWords& counts = queue_.counts();
  return (!coming_.empty() && reached(counts.arrived, coming_.front()->number + 1)) ||
         (!leaving_.empty() && reached(counts.retired, leaving_.front()->number + 1));
}

/// Sleeps until there is something to do; what has ended on the host. Nothing: the lane ends.
std::optional<EndedFlights> LaneCore::listen() {
  const auto until = std::chrono::steady_clock::now() + looks_on;
  std::unique_lock lock(mutex_);
  while (!woken_ && !stopping_ && !words_moved()) {
    if (active_ == 0) {
      heard_.wait(lock, [this] { return woken_ || stopping_; });
    } else if (std::chrono::steady_clock::now() < until) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    } else {
      heard_.wait_for(lock, nap, [this] { return woken_ || stopping_; });
      if (broken_) {
        break;  // no word may come any more
      }
    }
  }
  if (stopping_ && active_ == 0) {
    return std::nullopt;
  }
  woken_ = false;
  coming_.append(posted_.take());
  return ended_.take();
}

/// In the order of the calls, so that all ranks start in the same order.
void LaneCore::start_arrived() {
  while (!coming_.empty() && reached(queue_.counts().arrived, coming_.front()->number + 1)) {
    Flight* const flight = coming_.pop();
    flying_.push(flight);
    start(flight);
  }
}

/// The inputs are in host memory. What cannot start has peers that wait for it: they hear of it by
/// the communicator, as they would not by this rank's operation.
void LaneCore::start(Flight* flight) {
  Operation& operation = *flight->operation;
  if (operation.failed) {
    return land(flight);
  }
  try {
    start_on_host(flight);
    return;
  } catch (const Error& error) {
    fail(operation, error);
  } catch (const std::exception& error) {
    fail(operation, unexpected(error));
  }
  revoke(text(operation.name, ": ", operation.error->what()));
  land(flight);
}

/// Throws if the host's part is not under way, or cannot be heard of.
void LaneCore::start_on_host(Flight* flight) {
  Operation& operation = *flight->operation;
  const ChunkMemory layout = operation.chunks.memory(flight->chunk);
  std::byte* const in = flight->memory + layout.in;
  std::byte* const out = flight->memory + layout.out;
  for (const Operand& input : operation.inputs) {
    if (input.of_host) {
      for_each_block(input, in, flight->chunk,
                     [](const std::byte* from, std::byte* to, std::size_t bytes) {
                       std::memcpy(to, from, bytes);
                     });
    }
  }
  if (operation.terms.start == nullptr) {
    return start_call(flight);
  }
  flight->work.emplace(
      operation.terms.start(communicator_, operation.terms, in, out, flight->chunk.count));
  flight->work->on_done([this, flight] { note_end(flight); });
}

void LaneCore::start_call(Flight* flight) {
  Operation& operation = *flight->operation;
  operation.host_inputs.clear();
  operation.host_outputs.clear();
  for (const Operand& input : operation.inputs) {
    operation.host_inputs.push_back(flight->memory + input.offset);
  }
  for (const Operand& output : operation.outputs) {
    operation.host_outputs.push_back(flight->memory + output.offset);
  }
  const DeviceCall& call = operation.call;
  if (call.start) {
    flight->work.emplace(call.start(operation.host_inputs, operation.host_outputs));
    flight->work->on_done([this, flight] { note_end(flight); });
  } else {
    call.begin(operation.host_inputs, operation.host_outputs,
               [this, flight](std::optional<Error> error) {
                 flight->error = std::move(error);
                 note_end(flight);
               });
  }
}

/// The host's part is over. Streams hear of flights in their order.
void LaneCore::land(Flight* flight) {
  Operation& operation = *flight->operation;
  if (flight->work) {
    try {
      flight->work->wait();  // done: at most, peers leave the memory
    } catch (const Error& error) {
      fail(operation, error);
    }
    flight->work.reset();
  } else if (flight->error) {
    fail(operation, *flight->error);
    flight->error.reset();
  }
  if (!operation.failed) {
    std::byte* const out = flight->memory + operation.chunks.memory(flight->chunk).out;
    for (const Operand& output : operation.outputs) {
      if (output.of_host) {
        for_each_block(output, out, flight->chunk,
                       [](std::byte* to, const std::byte* from, std::size_t bytes) {
                         std::memcpy(to, from, bytes);
                       });
      }
    }
  }
  flight->landed = true;
  while (flying_.front() != nullptr && flying_.front()->landed) {
    Flight* const first = flying_.pop();
    tell_landed(*first);
    leaving_.push(first);
  }
}

/// Never backwards: of a lane that broke down, later flights may have landed before.
void LaneCore::tell_landed(const Flight& flight) {
  std::uint32_t* const word = queue_.counts().landed;
  if (!reached(word, flight.number + 1)) {
    // Release: streams, and threads, that see the word see the outputs.
    std::atomic_ref(*word).store(flight.number + 1, std::memory_order_release);
  }
}

void LaneCore::retire_left() {
  while (leaving_.front() != nullptr &&
         reached(queue_.counts().retired, leaving_.front()->number + 1)) {
    retire(leaving_.pop());
  }
}

void LaneCore::retire(Flight* flight) {
  Operation& operation = *flight->operation;
  std::function<void()> notice;
  {
    const std::lock_guard lock(mutex_);
    spare_flights_.push(flight);
    if (++operation.retired < operation.flights) {
      return;
    }
    operation.finished = true;
    --active_;
    notice.swap(operation.notice);
  }
  finished_.notify_all();
  if (notice) {
    notice();
  }
  let_go(&operation);
}

/// If the device broke down: ends what waits for it. What is under way on the host is left until it
/// has ended, which the revoke sees to; peers hear of it by the same. Streams that still work are
/// let go on to their ends, for a while: callers have their memory back once an operation has
/// ended.
void LaneCore::give_up(std::chrono::steady_clock::time_point since) {
  std::optional<Error> error;
  {
    const std::lock_guard lock(mutex_);
    error = broken_;
    coming_.append(posted_.take());
  }
  revoke(error->what());
  Line<Flight> all = leaving_.take();
  all.append(coming_.take());
  const bool patient = std::chrono::steady_clock::now() - since < last_copies;
  while (Flight* const flight = all.pop()) {
    Operation& operation = *flight->operation;
    fail(operation, *error);
    tell_landed(*flight);
    if (patient) {
      leaving_.push(flight);
      continue;
    }
    if (operation.retired + 1 == operation.flights) {
      std::atomic_ref(*operation.word).store(operation.value, std::memory_order_release);
    }
    retire(flight);
  }
}

/// Ends the communicator on all ranks, unless it has ended.
void LaneCore::revoke(std::string_view why) {
  if (communicator_.failure()) {
    return;
  }
  try {
    communicator_.revoke(
        text("rank ", communicator_.rank(), " of ", communicator_.name(), ": ", why));
  } catch (const std::exception& refused) {
    log().warn("{}; peers could not be told: {}", why, std::string_view(refused.what()));
  }
}

/// The first error stays.
void LaneCore::fail(Operation& operation, const Error& error) {
  if (!operation.failed) {
    const std::lock_guard lock(mutex_);
    operation.error.emplace(error);
    operation.failed = true;
  }
}

}  // namespace sprat::device
