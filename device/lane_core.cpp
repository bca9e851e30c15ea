#include "device/lane_core.hpp"

#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "comm/base/thread.hpp"

namespace sprat::device {
namespace {

/// A stream that fails calls no function any more, so silence is looked into this often.
constexpr std::chrono::milliseconds silence{100};

std::byte* stand_in(const Operand& operand, std::byte* begin, const Chunk& chunk) {
  return begin + operand.offset + operand.first_block * operand.size * chunk.count;
}

/// Calls `copy(device's, host's, bytes)` for each block of the chunk; once for all if they lie
/// beside each other on both sides.
template <class Copy>
void for_each_block(const Operand& operand, std::byte* begin, const Chunk& chunk,
                    const Copy& copy) {
  const std::size_t bytes = operand.size * chunk.count;
  std::byte* const host = stand_in(operand, begin, chunk);
  std::byte* const memory = operand.memory + chunk.first * operand.size;
  if (operand.blocks > 1 && operand.stride == bytes) {
    return copy(memory, host, bytes * operand.blocks);
  }
  for (std::size_t block = 0; block < operand.blocks && bytes > 0; ++block) {
    copy(memory + block * operand.stride, host + block * bytes, bytes);
  }
}

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

Error unexpected(const std::exception& error) { return Error(ErrorCode::internal, error.what()); }

}  // namespace

LaneCore::LaneCore(Communicator& communicator, std::shared_ptr<Device> device,
                   const LaneOptions& options)
    : communicator_(communicator), device_(std::move(device)), options_(options) {
  require(options_.chunk_bytes > 0 && options_.chunk_bytes * 2 <= options_.slab_bytes,
          "a lane's slab of ", options_.slab_bytes, " bytes must hold two chunks of ",
          options_.chunk_bytes);
  slab_ = std::make_unique<Slab>(*device_, options_.slab_bytes);
  in_ = device_->make_stream();
  out_ = device_->make_stream();
  // Last: should we end here, no page ends with us that streams may wait for.
  words_ = WordPage::take(device_);
}

LaneCore::~LaneCore() {
  for (const Operation& operation : operations_) {
    if (operation.came != nullptr) {
      device_->destroy_event(operation.came);
    }
  }
}

void LaneCore::begin() {
  thread_ = start_thread("the thread of a device lane", [this] { run(); });
}

void LaneCore::end() noexcept {
  // A child of fork() has neither the thread nor the device: what is there stays as it is.
  if (!process_.here()) {
    thread_.detach();
    keep_forever(shared_from_this());
    return;
  }
  settle();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  heard_.notify_one();
  thread_.join();
  for (const DeviceStream stream : {in_, out_}) {
    try {
      device_->synchronize(stream);  // the last functions that it calls have returned
    } catch (const Error&) {
      // Told to the operations already.
    }
    device_->destroy_stream(stream);
  }
  slab_.reset();
  WordPage::give(std::move(words_));
  if (broken_) {
    // synchronize() waits for nothing on a device that broke down: a function that it called may
    // be about to count.
    keep_forever(shared_from_this());
  }
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
  operation->admitted = operation->landed = operation->retired = 0;
  operation->failed = operation->finished = false;
  operation->error.reset();
  return operation;
}

Operation* LaneCore::spare_operation() {
  const std::lock_guard lock(mutex_);
  if (Operation* const operation = spare_.pop()) {
    return operation;
  }
  need(operations_.size() < WordPage::words, "a lane of ", device_->name(), " has ",
       operations_.size(), " operations that are under way or whose DeviceWork is kept; wait for ",
       "some, and let go of their DeviceWork");
  Operation& operation = operations_.emplace_back();
  operation.word = words_->word(operations_.size() - 1);
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
  device_->record(operation.came, stream);
  hold(operation);  // the lane's
  {
    const std::lock_guard lock(mutex_);
    ++operation.value;
    ++active_;
    news_.posted.push(&operation);
  }
  heard_.notify_one();
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

void LaneCore::note_arrival(void* core) {
  auto& self = *static_cast<LaneCore*>(core);
  const std::lock_guard lock(self.mutex_);
  ++self.news_.arrived;
  self.heard_.notify_one();
}

void LaneCore::note_departure(void* core) {
  auto& self = *static_cast<LaneCore*>(core);
  const std::lock_guard lock(self.mutex_);
  ++self.news_.left;
  self.heard_.notify_one();
}

void LaneCore::note_end(Flight* flight) {
  const std::lock_guard lock(mutex_);
  news_.ended.push(flight);
  heard_.notify_one();
}

void LaneCore::run() {
  while (std::optional<News> news = next_news()) {
    const bool silent = !news->any();
    // A device that broke down has had its lines emptied: what is counted may be gone.
    for (; news->arrived > 0 && !copying_.empty(); --news->arrived) {
      start(copying_.pop());
    }
    while (Flight* const flight = news->ended.pop()) {
      land(flight);
    }
    for (; news->left > 0 && !leaving_.empty(); --news->left) {
      retire(leaving_.pop());
    }
    waiting_.append(news->posted);
    admit();
    if (silent) {
      watch_streams();
      admit();  // a device that broke down has no room to wait for
    }
  }
}

std::optional<LaneCore::News> LaneCore::next_news() {
  std::unique_lock lock(mutex_);
  const auto something = [this] { return news_.any() || stopping_; };
  const bool copies = !copying_.empty() || !leaving_.empty();
  if (copies) {
    heard_.wait_for(lock, silence, something);
  } else {
    heard_.wait(lock, something);
  }
  if (stopping_ && !news_.any()) {
    return std::nullopt;
  }
  return std::exchange(news_, News());
}

/// Asks streams whose copies have been silent whether they have failed.
void LaneCore::watch_streams() {
  if (broken_ || (copying_.empty() && leaving_.empty())) {
    return;
  }
  try {
    device_->idle(in_);
    device_->idle(out_);
  } catch (const Error& error) {
    break_down(error);
  }
}

/// In the order of the calls, as far as there is memory: all ranks start in the same order.
void LaneCore::admit() {
  while (Operation* const operation = waiting_.front()) {
    while (!operation->all_admitted()) {
      if (broken_) {
        fail(*operation, *broken_);
        break;
      }
      const ChunkMemory layout = operation->chunks.memory(operation->chunks[operation->admitted]);
      std::byte* memory = nullptr;
      if (!operation->failed) {
        try {
          memory = slab_->take(layout.bytes);
          if (memory == nullptr) {
            return;  // until something retires
          }
        } catch (const Error& error) {
          fail_for_all(*operation, error);
        }
      }
      admit_chunk(*operation, memory, layout);
    }
    waiting_.pop();
    finish_if_over(*operation);
  }
}

/// Queues the copies of a chunk's inputs. A chunk that fails here goes the same way as others,
/// without copies: so the lines stay in the order of the streams.
void LaneCore::admit_chunk(Operation& operation, std::byte* memory, const ChunkMemory& layout) {
  Flight* const flight = new_flight();
  flight->operation = &operation;
  flight->chunk = operation.chunks[operation.admitted];
  flight->memory = memory;
  flight->bytes = layout.bytes;
  if (!operation.failed) {
    try {
      if (operation.admitted == 0) {
        device_->wait(in_, operation.came);
      }
      for (const Operand& input : operation.inputs) {
        if (!input.of_host) {
          for_each_block(input, memory + layout.in, flight->chunk,
                         [this](std::byte* from, std::byte* to, std::size_t bytes) {
                           device_->copy(in_, to, from, bytes);
                         });
        }
      }
    } catch (const Error& error) {
      fail_for_all(operation, error);
    }
  }
  ++operation.admitted;
  copying_.push(flight);
  try {
    device_->notify(in_, note_arrival, this);
  } catch (const Error& error) {
    break_down(error);
  }
}

/// The inputs are in host memory.
void LaneCore::start(Flight* flight) {
  Operation& operation = *flight->operation;
  if (operation.failed) {
    return land(flight);
  }
  const ChunkMemory layout = operation.chunks.memory(flight->chunk);
  std::byte* const in = flight->memory + layout.in;
  std::byte* const out = flight->memory + layout.out;
  try {
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
  } catch (const Error& error) {
    fail(operation, error);
    land(flight);
  }
}

/// Throws only Error, and only if the host's part is not under way.
void LaneCore::start_call(Flight* flight) {
  Operation& operation = *flight->operation;
  operation.host_inputs.clear();
  operation.host_outputs.clear();
  for (const Operand& input : operation.inputs) {
    operation.host_inputs.push_back(stand_in(input, flight->memory, flight->chunk));
  }
  for (const Operand& output : operation.outputs) {
    operation.host_outputs.push_back(stand_in(output, flight->memory, flight->chunk));
  }
  const DeviceCall& call = operation.call;
  try {
    if (call.start) {
      flight->work.emplace(call.start(operation.host_inputs, operation.host_outputs));
    } else {
      call.begin(operation.host_inputs, operation.host_outputs,
                 [this, flight](std::optional<Error> error) {
                   flight->error = std::move(error);
                   note_end(flight);
                 });
      return;
    }
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw unexpected(error);
  }
  flight->work->on_done([this, flight] { note_end(flight); });
}

/// The host's part is over: queues the copies of the outputs and, behind the operation's last ones,
/// the word.
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
  ++operation.landed;
  if (broken_) {
    fail(operation, *broken_);
    return retire(flight);
  }
  if (!operation.failed) {
    queue_outputs(*flight);
  }
  leaving_.push(flight);
  try {
    // A failed operation's word goes through the stream, too: chunks before may still be copied.
    if (operation.all_landed()) {
      device_->write_word(out_, operation.word, operation.value);
    }
    device_->notify(out_, note_departure, this);
  } catch (const Error& error) {
    break_down(error);
  }
}

void LaneCore::queue_outputs(const Flight& flight) {
  Operation& operation = *flight.operation;
  std::byte* const out = flight.memory + operation.chunks.memory(flight.chunk).out;
  try {
    for (const Operand& output : operation.outputs) {
      for_each_block(output, out, flight.chunk,
                     [&](std::byte* to, const std::byte* from, std::size_t bytes) {
                       if (output.of_host) {
                         std::memcpy(to, from, bytes);
                       } else {
                         device_->copy(out_, to, from, bytes);
                       }
                     });
    }
  } catch (const Error& error) {
    fail_for_all(operation, error);
  }
}

void LaneCore::retire(Flight* flight) {
  Operation& operation = *flight->operation;
  if (flight->memory != nullptr) {
    slab_->give(flight->memory, flight->bytes);
  }
  spare_flights_.push(flight);
  ++operation.retired;
  if (waiting_.front() != &operation) {
    finish_if_over(operation);
  }
}

void LaneCore::finish_if_over(Operation& operation) {
  if (!operation.all_retired() && !(broken_ && operation.retired == operation.admitted)) {
    return;
  }
  std::function<void()> notice;
  {
    const std::lock_guard lock(mutex_);
    operation.finished = true;
    --active_;
    notice.swap(operation.notice);
  }
  if (broken_) {
    // No stream of this device writes any more. Release: the error is there.
    std::atomic_ref(*operation.word).store(operation.value, std::memory_order_release);
  }
  finished_.notify_all();
  if (notice) {
    notice();
  }
  let_go(&operation);
}

/// The first error stays.
void LaneCore::fail(Operation& operation, const Error& error) {
  if (!operation.failed) {
    const std::lock_guard lock(mutex_);
    operation.error.emplace(error);
    operation.failed = true;
  }
}

/// Peers wait for what this rank will not start: they must hear of it.
void LaneCore::fail_for_all(Operation& operation, const Error& error) {
  const std::string said = text(operation.name, " of rank ", communicator_.rank(), " of ",
                                communicator_.name(), ": ", error.what());
  fail(operation, Error(error.code(), said));
  try {
    communicator_.revoke(said);
  } catch (const Error& refused) {
    log().warn("{}; peers could not be told: {}", said, std::string_view(refused.what()));
  }
}

/// The device does nothing any more. What is under way on the host ends by the revoke.
void LaneCore::break_down(const Error& error) {
  if (broken_) {
    return;
  }
  broken_ = error;
  Line<Flight> copying = copying_.take(), leaving = leaving_.take();
  for (const Line<Flight>* line : {&copying, &leaving}) {
    if (!line->empty()) {
      fail_for_all(*line->front()->operation, error);
    }
  }
  while (Flight* const flight = leaving.pop()) {
    fail(*flight->operation, error);
    retire(flight);
  }
  while (Flight* const flight = copying.pop()) {
    fail(*flight->operation, error);
    land(flight);
  }
}

Flight* LaneCore::new_flight() {
  if (Flight* const flight = spare_flights_.pop()) {
    return flight;
  }
  return &flights_.emplace_back();
}

}  // namespace sprat::device
