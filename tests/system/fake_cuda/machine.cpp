#include "tests/system/fake_cuda/machine.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

namespace fake_cuda {
namespace {

constexpr int poison = 0xDE;
constexpr std::align_val_t alignment{256};

unsigned environment_number(const char* name, unsigned otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : static_cast<unsigned>(std::strtoul(text, nullptr, 10));
}

}  // namespace

Machine& Machine::get() {
  // Never destroyed: threads of streams may run until the process ends.
  static auto* const machine = new Machine;
  return *machine;
}

Machine::Machine() : seed_(environment_number("FAKE_CUDA_SEED", 0)) {
  const unsigned count = environment_number("FAKE_CUDA_DEVICES", 2);
  for (unsigned index = 0; index < count; ++index) {
    devices_.push_back(std::make_unique<FakeDevice>());
    devices_.back()->index = static_cast<int>(index);
    devices_.back()->standard = std::make_unique<Stream>(*this, *devices_.back(), true, 0);
  }
}

bool& Machine::in_host_function() {
  thread_local bool in = false;
  return in;
}

std::vector<FakeDevice*>& Machine::contexts() {
  thread_local std::vector<FakeDevice*> stack;
  return stack;
}

FakeDevice* Machine::current() { return contexts().empty() ? nullptr : contexts().back(); }

FakeDevice* Machine::device(int index) {
  return index >= 0 && index < device_count() ? devices_[static_cast<std::size_t>(index)].get()
                                              : nullptr;
}

int Machine::enter() {
  if (in_host_function()) {
    return not_permitted;
  }
  FakeDevice* const device = current();
  if (device == nullptr) {
    return invalid_context;
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return device->locked == 0; });
  return device->broken;
}

Stream* Machine::make_stream(FakeDevice& device, bool blocking) {
  const std::lock_guard lock(mutex_);
  std::erase_if(ended_, [](const auto& stream) { return stream->idle_; });
  auto* const stream =
      new Stream(*this, device, blocking, seed_ == 0 ? 0 : seed_ * 7919 + ++streams_made_);
  streams_.insert(stream);
  return stream;
}

int Machine::destroy_stream(Stream* stream) {
  const std::lock_guard lock(mutex_);
  if (streams_.erase(stream) == 0) {
    return invalid_handle;
  }
  stream->close();
  ended_.emplace_back(stream);
  changed_.notify_all();
  return success;
}

Stream* Machine::stream(void* handle) {
  FakeDevice& device = *current();
  // Handles 1 and 2 are the default stream by its other names.
  if (reinterpret_cast<std::uintptr_t>(handle) <= 2) {
    return device.standard.get();
  }
  const std::lock_guard lock(mutex_);
  auto* const stream = static_cast<Stream*>(handle);
  return streams_.contains(stream) && &stream->device == &device ? stream : nullptr;
}

int Machine::queue(Stream& stream, Task task) {
  const std::lock_guard lock(mutex_);
  if (stream.device.broken != success) {
    return stream.device.broken;
  }
  if (stream.capturing) {
    return capture_unsupported;
  }
  struct Before {
    std::shared_ptr<Progress> progress;
    std::uint64_t number;
  };
  std::vector<Before> before;
  if (&stream == stream.device.standard.get()) {
    for (const Stream* const other : streams_) {
      if (other->blocking && &other->device == &stream.device) {
        before.push_back({other->progress, other->progress->queued});
      }
    }
  } else if (stream.blocking) {
    const auto& progress = stream.device.standard->progress;
    before.push_back({progress, progress->queued});
  }
  ++stream.progress->queued;
  stream.tasks_.push_back([this, &stream, before, task = std::move(task)] {
    for (const Before& one : before) {
      await(stream.device, [&one] { return one.progress->done >= one.number; });
    }
    return over(stream.device) ? success : task();
  });
  changed_.notify_all();
  return success;
}

int Machine::wait_for(Stream& stream) {
  std::unique_lock lock(mutex_);
  ++waits_;
  const std::uint64_t number = stream.progress->queued;
  changed_.wait(lock, [&] { return stream.progress->done >= number; });
  return stream.device.broken;
}

int Machine::wait_for_all(const FakeDevice& device) {
  std::unique_lock lock(mutex_);
  ++waits_;
  const auto is_idle = [](const Stream& stream) {
    return stream.progress->done == stream.progress->queued;
  };
  changed_.wait(lock, [&] {
    return is_idle(*device.standard) && std::ranges::all_of(streams_, [&](const Stream* stream) {
             return &stream->device != &device || is_idle(*stream);
           });
  });
  return device.broken;
}

int Machine::done(const Stream& stream) {
  const std::lock_guard lock(mutex_);
  if (stream.device.broken != success) {
    return stream.device.broken;
  }
  return stream.progress->done == stream.progress->queued ? success : not_ready;
}

bool Machine::capturing(const Stream& stream) {
  const std::lock_guard lock(mutex_);
  return stream.capturing;
}

int Machine::capture(Stream& stream, bool on) {
  const std::lock_guard lock(mutex_);
  stream.capturing = on;
  return success;
}

int Machine::record(Event& event, Stream& stream) {
  if (event.device != stream.device.index) {
    return invalid_handle;
  }
  const int code = queue(stream, [] { return success; });
  const std::lock_guard lock(mutex_);
  event.progress = stream.progress;
  event.number = stream.progress->queued;
  return code;
}

int Machine::wait_event(Stream& stream, const Event& event) {
  if (event.progress == nullptr) {
    return success;  // never recorded: nothing to wait for
  }
  FakeDevice& device = stream.device;
  return queue(stream, [this, &device, progress = event.progress, number = event.number]() -> int {
    await(device, [&progress, number] { return progress->done >= number; });
    return success;
  });
}

int Machine::reached(const Event& event) {
  const std::lock_guard lock(mutex_);
  return event.progress == nullptr || event.progress->done >= event.number ? success : not_ready;
}

int Machine::wait_for(const Event& event) {
  std::unique_lock lock(mutex_);
  ++waits_;
  const FakeDevice& device = *devices_[static_cast<std::size_t>(event.device)];
  changed_.wait(lock, [&] {
    return event.progress == nullptr || event.progress->done >= event.number ||
           device.broken != success;
  });
  return device.broken;
}

int Machine::allocate(void** memory, std::size_t bytes, Kind kind) {
  if (bytes == 0) {
    return invalid_value;
  }
  *memory = ::operator new(bytes, alignment, std::nothrow);
  if (*memory == nullptr) {
    return out_of_memory;
  }
  std::memset(*memory, poison, bytes);
  const std::lock_guard lock(mutex_);
  pieces_[reinterpret_cast<std::uintptr_t>(*memory)] = {bytes, kind, current()->index, true};
  return success;
}

int Machine::release(void* memory) {
  if (memory == nullptr) {
    return success;
  }
  {
    const std::lock_guard lock(mutex_);
    const auto found = pieces_.find(reinterpret_cast<std::uintptr_t>(memory));
    if (found == pieces_.end() || !found->second.ours) {
      return invalid_value;
    }
    // Within the lock, in which copies are done, so that none reads what is going.
    std::memset(memory, poison, found->second.bytes);
    pieces_.erase(found);
  }
  ::operator delete(memory, alignment);
  return success;
}

int Machine::pin(void* memory, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto [place, is_new] = pieces_.try_emplace(reinterpret_cast<std::uintptr_t>(memory),
                                                   Piece{bytes, Kind::pinned, current()->index});
  return is_new ? success : already_registered;
}

int Machine::unpin(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto found = pieces_.find(reinterpret_cast<std::uintptr_t>(memory));
  if (found == pieces_.end() || found->second.ours) {
    return not_registered;
  }
  pieces_.erase(found);
  return success;
}

const Piece* Machine::find_locked(const void* memory, std::size_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  auto found = pieces_.upper_bound(address);
  if (found == pieces_.begin()) {
    return nullptr;
  }
  --found;
  return address + bytes <= found->first + found->second.bytes ? &found->second : nullptr;
}

const Piece* Machine::find(const void* memory, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  return find_locked(memory, bytes);
}

int Machine::copy(Stream& stream, void* to, const void* from, std::size_t bytes) {
  bool pageable = false;
  {
    const std::lock_guard lock(mutex_);
    if (refuse_ > 0 && --refuse_ == 0) {
      return invalid_value;
    }
    pageable = find_locked(to, bytes) == nullptr || find_locked(from, bytes) == nullptr;
  }
  FakeDevice& device = stream.device;
  const int code = queue(stream, [this, &device, to, from, bytes, pageable]() -> int {
    if (pageable) {
      std::memcpy(to, from, bytes);
      return success;
    }
    return copy_now(device, to, from, bytes);
  });
  // Of memory that is not pinned the driver knows nothing: it does not return before it is done.
  if (code != success || !pageable) {
    return code;
  }
  const auto hold = [&](int by) {
    const std::lock_guard lock(mutex_);
    device.locked += by;
    changed_.notify_all();
  };
  const bool locks = lock_in_waits_;
  if (locks) {
    hold(1);
  }
  const int waited = wait_for(stream);
  if (locks) {
    hold(-1);
  }
  return waited;
}

int Machine::copy_now(FakeDevice& device, void* to, const void* from, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (break_ > 0 && --break_ == 0) {
    return illegal_address;
  }
  const Piece* const target = find_locked(to, bytes);
  const Piece* const source = find_locked(from, bytes);
  const auto may = [&](const Piece* piece) {
    return piece != nullptr && (piece->kind != Kind::device || piece->device == device.index);
  };
  if (!may(target) || !may(source)) {
    return illegal_address;
  }
  std::memcpy(to, from, bytes);
  return success;
}

void Machine::await(const FakeDevice& device, const Condition& met) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return met() || device.broken != success; });
}

bool Machine::over(const FakeDevice& device) {
  const std::lock_guard lock(mutex_);
  return device.broken != success;
}

void Machine::lock_in_waits(bool on) { lock_in_waits_ = on; }

void Machine::seed(unsigned seed) {
  const std::lock_guard lock(mutex_);
  seed_ = seed;
}

void Machine::refuse_copy(int n) {
  const std::lock_guard lock(mutex_);
  refuse_ = n;
}

void Machine::break_at_copy(int n) {
  const std::lock_guard lock(mutex_);
  break_ = n;
}

void Machine::mend() {
  const std::lock_guard lock(mutex_);
  refuse_ = break_ = 0;
  for (const auto& device : devices_) {
    device->broken = success;
  }
}

int Machine::waits() {
  const std::lock_guard lock(mutex_);
  return waits_;
}

int Machine::pieces() {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(pieces_.size());
}

Stream::Stream(Machine& machine, FakeDevice& of, bool blocks, unsigned seed)
    : device(of), blocking(blocks), machine_(machine), random_(seed), dawdles_(seed != 0) {
  // A stream may wait for a word that nobody writes any more; the process ends all the same.
  std::thread([this] { run(); }).detach();
}

void Stream::dawdle() {
  if (dawdles_ && random_() % 4 == 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % 300));
  }
}

void Stream::run() {
  std::unique_lock lock(machine_.mutex_);
  for (;;) {
    machine_.changed_.wait(lock, [this] { return closing_ || !tasks_.empty(); });
    if (tasks_.empty()) {
      idle_ = true;
      return;
    }
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    int code = success;
    if (device.broken == success) {
      lock.unlock();
      dawdle();
      code = task();
      lock.lock();
    }
    if (code != success && device.broken == success) {
      device.broken = code;
    }
    ++progress->done;
    machine_.changed_.notify_all();
  }
}

}  // namespace fake_cuda
