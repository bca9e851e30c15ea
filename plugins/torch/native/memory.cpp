#include "plugins/torch/native/memory.hpp"

#include <pthread.h>

#include <atomic>
#include <bit>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "sprat/buffer.hpp"

namespace sprat::pytorch {
namespace {

constexpr std::size_t KiB = 1024, MiB = 1024 * KiB;
/// How much freed memory is kept; what is beyond goes back to the system.
constexpr std::size_t most_kept = 1024 * MiB;

/// Sizes are rounded so that a freed block fits other tensors of about its size: to powers of two,
/// and from 2 MiB on to whole huge pages.
std::size_t rounded(std::size_t bytes) {
  constexpr std::size_t smallest = 4 * KiB, huge = 2 * MiB;
  return bytes < huge ? std::bit_ceil(std::max(bytes, smallest)) : (bytes + huge - 1) / huge * huge;
}

/// Free blocks by size. Never destroyed, since tensors may be freed while the process ends.
class Pool final {
 public:
  /// A child of fork() starts with a new one and leaves its parent's alone: those blocks are shared
  /// with the parent and its other children, and a thread of the parent's may have held the lock.
  static Pool& of_process() {
    static std::atomic<Pool*> current = nullptr;
    // The handler allocates nothing: a thread that is gone may have held the allocator's lock.
    static const int registered =
        ::pthread_atfork(nullptr, nullptr, [] { current.store(nullptr); });
    static_cast<void>(registered);
    Pool* pool = current.load();
    if (pool == nullptr) {
      auto fresh = std::make_unique<Pool>();
      if (current.compare_exchange_strong(pool, fresh.get())) {
        pool = fresh.release();
      }  // else another thread was faster, and pool is its
    }
    return *pool;
  }

  Memory take(std::size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      std::vector<Memory>& blocks = kept_[bytes];
      use_.used += bytes;
      if (!blocks.empty()) {
        Memory block = std::move(blocks.back());
        blocks.pop_back();
        use_.kept -= bytes;
        mark(block, true);
        return block;
      }
    }
    Memory block(bytes);  // without the lock, since the kernel makes its pages now
    const std::lock_guard lock(mutex_);
    mark(block, true);
    return block;
  }

  void give(Memory block) {
    const std::lock_guard lock(mutex_);
    mark(block, false);
    use_.used -= block.bytes();
    if (use_.kept + block.bytes() <= most_kept) {
      use_.kept += block.bytes();
      kept_[block.bytes()].push_back(std::move(block));
    }
  }

  bool holds(const void* data) {
    const std::lock_guard lock(mutex_);
    const auto after = ends_.upper_bound(data);
    return after != ends_.end() && after->second <= data;
  }

  MemoryUse use() {
    const std::lock_guard lock(mutex_);
    return use_;
  }

  void release() {
    std::map<std::size_t, std::vector<Memory>> gone;  // freed after the lock was let go
    const std::lock_guard lock(mutex_);
    gone.swap(kept_);
    use_.kept = 0;
  }

 private:
  void mark(const Memory& block, bool used) {
    const auto* begin = static_cast<const char*>(block.data());
    if (used) {
      ends_[begin + block.bytes()] = begin;
    } else {
      ends_.erase(begin + block.bytes());
    }
  }

  std::mutex mutex_;  ///< Guards the rest.
  std::map<std::size_t, std::vector<Memory>> kept_;
  std::map<const void*, const void*> ends_;  ///< Of blocks in use: end to begin.
  MemoryUse use_;
};

}  // namespace

at::Tensor empty_shared(at::IntArrayRef sizes, at::ScalarType dtype) {
  const std::size_t bytes =
      static_cast<std::size_t>(c10::multiply_integers(sizes)) * c10::elementSize(dtype);
  Pool& pool = Pool::of_process();
  auto* block = new Memory(pool.take(rounded(bytes)));
  return at::from_blob(
      block->data(), sizes,
      [block, &pool](void*) {
        // In a child of fork() the block is not kept, since the parent uses its pages too.
        if (&pool == &Pool::of_process()) {
          pool.give(std::move(*block));
        }
        delete block;
      },
      at::TensorOptions().dtype(dtype).device(at::kCPU));
}

bool is_shared(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.numel() > 0 && Pool::of_process().holds(tensor.data_ptr());
}

MemoryUse memory_use() { return Pool::of_process().use(); }

void release_kept_memory() { Pool::of_process().release(); }

}  // namespace sprat::pytorch
