#include "tests/gpu/stand_in/allocator.hpp"

#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <vector>

namespace stand_in {
namespace {

// Of every float format a NaN, and of integers -1: no sum with it looks right.
constexpr int poison = 0xff;

struct Block {
  char* memory = nullptr;
  std::size_t bytes = 0;
  Stream* stream = nullptr;  ///< In whose order it is reused.
  std::set<Stream*> others;  ///< Which use it too.
};

class Blocks final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const int device = current_device();
    char* memory = bytes == 0 ? nullptr : take(std::bit_ceil(std::max<std::size_t>(bytes, 512)));
    return {memory, memory, &Blocks::deleter,
            c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device))};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Blocks::deleter; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    current_stream(current_device())->queue("copy_data", [=] { std::memcpy(to, from, bytes); });
  }

  void record(const void* memory, Stream* stream) {
    const std::lock_guard lock(mutex_);
    if (Block* block = find(memory); block != nullptr && block->stream != stream) {
      block->others.insert(stream);
    }
  }

  int device(const void* memory) {
    const std::lock_guard lock(mutex_);
    const Block* block = find(memory);
    return block == nullptr ? -1 : block->stream->device();
  }

  std::size_t used() {
    const std::lock_guard lock(mutex_);
    return used_;
  }

 private:
  static void deleter(void* memory);

  char* take(std::size_t bytes) {
    Stream* stream = current_stream(current_device());
    const std::lock_guard lock(mutex_);
    used_ += bytes;
    auto& kept = kept_[{stream, bytes}];
    if (!kept.empty()) {
      char* memory = kept.back();
      kept.pop_back();
      return memory;
    }
    // Never given back to the system: who reads too late reads poison, not another's memory.
    auto* memory = static_cast<char*>(std::aligned_alloc(512, bytes));
    std::memset(memory, poison, bytes);
    blocks_[memory] = {memory, bytes, stream, {}};
    return memory;
  }

  /// In the order of its stream what comes next may use it at once; others' work is waited for
  /// there first.
  void give(char* memory) {
    const std::lock_guard lock(mutex_);
    Block& block = blocks_.at(memory);
    used_ -= block.bytes;
    for (Stream* other : block.others) {
      auto passed = std::make_shared<Event>();
      const std::uint64_t version = passed->record();
      other->queue("event", [=] { passed->reach(version); });
      block.stream->queue("wait", [=] { passed->wait(version); });
    }
    block.others.clear();
    block.stream->queue("poison", [=, bytes = block.bytes] { std::memset(memory, poison, bytes); });
    kept_[{block.stream, block.bytes}].push_back(memory);
  }

  Block* find(const void* memory) {
    auto after = blocks_.upper_bound(static_cast<char*>(const_cast<void*>(memory)));
    if (after == blocks_.begin()) {
      return nullptr;
    }
    Block& block = (--after)->second;
    return static_cast<const char*>(memory) < block.memory + block.bytes ? &block : nullptr;
  }

  std::mutex mutex_;  ///< Guards the rest.
  std::map<char*, Block> blocks_;
  std::map<std::pair<Stream*, std::size_t>, std::vector<char*>> kept_;
  std::size_t used_ = 0;
};

Blocks& blocks() {
  static Blocks* made = new Blocks;
  return *made;
}

void Blocks::deleter(void* memory) {
  if (memory != nullptr) {
    blocks().give(static_cast<char*>(memory));
  }
}

}  // namespace

c10::Allocator* allocator() { return &blocks(); }
void record_stream(const void* memory, Stream* stream) { blocks().record(memory, stream); }
int device_of(const void* memory) { return blocks().device(memory); }
std::size_t used() { return blocks().used(); }

}  // namespace stand_in
