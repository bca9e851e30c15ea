#include "io/dataset/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "comm/base/log.hpp"
#include "comm/base/thread.hpp"
#include "sprat/error.hpp"

namespace sprat::io {

void in_parallel(std::size_t count, int threads, std::string_view purpose,
                 const std::function<bool(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  const auto share = [&] {
    // Relaxed: the counter shares out numbers, and hands over nothing else.
    for (std::size_t at; (at = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
      if (!work(at)) {
        next.store(count, std::memory_order_relaxed);  // nobody begins another
      }
    }
  };
  std::vector<std::thread> others;
  const std::size_t wanted = std::min(static_cast<std::size_t>(std::max(threads, 1)), count);
  try {
    for (std::size_t thread = 1; thread < wanted; ++thread) {
      others.push_back(start_thread(purpose, share));
    }
  } catch (const Error& error) {
    log().warn("{}; fewer threads do it", error.what());
  }
  share();
  for (std::thread& thread : others) {
    thread.join();
  }
}

}  // namespace sprat::io
