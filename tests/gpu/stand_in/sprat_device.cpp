// The stand-in device's streams as Sprat sees them.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "sprat/device.hpp"
#include "tests/gpu/stand_in/allocator.hpp"
#include "tests/gpu/stand_in/streams.hpp"

namespace stand_in {
namespace {

struct Mark {
  std::shared_ptr<Event> event = std::make_shared<Event>();
};

class SpratDevice final : public sprat::Device {
 public:
  explicit SpratDevice(int index) : index_(index), name_("stand_in:" + std::to_string(index)) {}

  const std::string& name() const noexcept override { return name_; }
  int index() const noexcept override { return index_; }

  void* allocate(std::size_t bytes) override {
    return std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  }
  void free(void* memory) noexcept override { std::free(memory); }
  sprat::DeviceMemory memory_of(const void* pointer) override {
    const int device = device_of(pointer);
    return device < 0 ? sprat::DeviceMemory{}
                      : sprat::DeviceMemory{sprat::MemoryKind::device, device};
  }
  void pin(void* memory, std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    pinned_[static_cast<char*>(memory)] = bytes;
  }
  void unpin(void* memory) noexcept override {
    const std::lock_guard lock(mutex_);
    pinned_.erase(static_cast<char*>(memory));
  }

  sprat::DeviceStream make_stream() override { return stand_in::make_stream(index_); }
  void destroy_stream(sprat::DeviceStream stream) noexcept override { ours(stream)->close(); }
  void synchronize(sprat::DeviceStream stream) override { ours(stream)->synchronize(); }
  bool idle(sprat::DeviceStream stream) override { return ours(stream)->idle(); }
  bool capturing(sprat::DeviceStream) override { return capturing_.load(); }

  sprat::DeviceEvent make_event() override { return new Mark; }
  void destroy_event(sprat::DeviceEvent event) noexcept override {
    delete static_cast<Mark*>(event);
  }
  void record(sprat::DeviceEvent event, sprat::DeviceStream stream) override {
    const auto mark = static_cast<Mark*>(event)->event;
    const std::uint64_t version = mark->record();
    ours(stream)->queue("event", [mark, version] { mark->reach(version); });
  }
  void wait(sprat::DeviceStream stream, sprat::DeviceEvent event) override {
    const auto mark = static_cast<Mark*>(event)->event;
    const std::uint64_t version = mark->newest();
    ours(stream)->queue("wait", [mark, version] { mark->wait(version); });
  }
  bool reached(sprat::DeviceEvent event) override {
    const auto mark = static_cast<Mark*>(event)->event;
    return mark->reached(mark->newest());
  }

  void copy(sprat::DeviceStream stream, void* to, const void* from, std::size_t bytes) override {
    require_known(to, bytes);
    require_known(from, bytes);
    ours(stream)->queue("sprat copy", [=] {
      if (failing_.load()) {
        throw sprat::Error(sprat::ErrorCode::unavailable,
                           "stand_in: a copy failed, as was asked for");
      }
      std::memcpy(to, from, bytes);
    });
  }
  void write_word(sprat::DeviceStream stream, std::uint32_t* word, std::uint32_t value) override {
    require_known(word, sizeof *word);
    ours(stream)->queue("write word",
                        [=] { std::atomic_ref(*word).store(value, std::memory_order_release); });
  }
  void wait_word(sprat::DeviceStream stream, const std::uint32_t* word,
                 std::uint32_t value) override {
    require_known(word, sizeof *word);
    ours(stream)->queue("wait word", [=] {
      const std::atomic_ref<std::uint32_t> seen(*const_cast<std::uint32_t*>(word));
      while (static_cast<std::int32_t>(seen.load(std::memory_order_acquire) - value) < 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    });
  }
  void notify(sprat::DeviceStream stream, void (*function)(void*), void* argument) override {
    ours(stream)->queue("notify", [=] { function(argument); });
  }

  static std::atomic<bool> capturing_, failing_;

 private:
  Stream* ours(sprat::DeviceStream stream) const {
    return stream == nullptr ? default_stream(index_) : static_cast<Stream*>(stream);
  }

  /// A device would copy from memory that it does not know by waiting, or not at all.
  void require_known(const void* memory, std::size_t bytes) {
    if (device_of(memory) >= 0) {
      return;
    }
    const std::lock_guard lock(mutex_);
    auto after = pinned_.upper_bound(static_cast<char*>(const_cast<void*>(memory)));
    if (after != pinned_.begin()) {
      const auto& [begin, size] = *--after;
      if (static_cast<const char*>(memory) + bytes <= begin + size) {
        return;
      }
    }
    throw sprat::Error(sprat::ErrorCode::unavailable,
                       "stand_in: memory that is neither the device's nor pinned");
  }

  const int index_;
  const std::string name_;
  std::mutex mutex_;  ///< Guards what follows.
  std::map<char*, std::size_t> pinned_;
};

std::atomic<bool> SpratDevice::capturing_ = false, SpratDevice::failing_ = false;

const sprat::DeviceKind kind{.name = "stand_in",
                             .count = [] { return devices; },
                             .current = [] { return current_device(); },
                             .open = [](int index) -> std::shared_ptr<sprat::Device> {
                               return std::make_shared<SpratDevice>(index);
                             }};

}  // namespace

const void* sprat_device_kind() { return &kind; }
void set_capturing(bool capturing) { SpratDevice::capturing_ = capturing; }
void fail_copies(bool failing) { SpratDevice::failing_ = failing; }

}  // namespace stand_in
