// The chaos queue: a thread, its operations, and the sleeps between.
#include "tests/unit/fsdp/chaos_queue.hpp"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

namespace sprat::fsdp {
namespace {

class Awaited final : public Pending::Operation {
 public:
  explicit Awaited(std::future<void> end) : end_(std::move(end)) {}
  void wait() override { end_.get(); }
  bool done() const override {
    return end_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

 private:
  std::future<void> end_;
};

class ChaosQueue final : public Queue {
 public:
  explicit ChaosQueue(std::uint64_t seed) : random_(seed), thread_([this] { run(); }) {}
  ~ChaosQueue() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  Pending submit(std::function<Work()> start) override {
    std::packaged_task<void()> task([start = std::move(start)] { start().wait(); });
    auto end = std::make_unique<Awaited>(task.get_future());
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
    return Pending(std::move(end));
  }

 private:
  void run() {
    for (;;) {
      std::packaged_task<void()> task;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return closing_ || !tasks_.empty(); });
        if (tasks_.empty()) {
          return;
        }
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      // Half of them at once, the others late enough for much else to happen before.
      if (random_() % 2 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(random_() % 200));
      }
      task();
    }
  }

  std::mt19937_64 random_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<void()>> tasks_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace

QueueKind chaos_queue(std::uint64_t seed) {
  // Ranks are threads that make their queues at the same time; each gets a seed of its own.
  return {.make =
              [random = std::make_shared<std::mt19937_64>(seed),
               mutex = std::make_shared<std::mutex>()] {
                const std::lock_guard lock(*mutex);
                return std::make_unique<ChaosQueue>((*random)());
              },
          .poisons_slots = true};
}

}  // namespace sprat::fsdp
