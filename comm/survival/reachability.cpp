#include "comm/survival/reachability.hpp"

#include <chrono>
#include <exception>
#include <string>
#include <utility>

#include "comm/base/log.hpp"
#include "comm/base/thread.hpp"
#include "comm/survival/port_probe.hpp"

namespace sprat::comm {
namespace {

// If its process has died, the coordinator says so within this time, and says it better.
constexpr std::chrono::milliseconds coordinator_grace{500};

}  // namespace

void ReachabilityCheck::start(std::vector<Target> targets, std::function<bool()> over,
                              std::function<void(int)> unreachable) {
  const std::lock_guard lock(mutex_);
  if (targets.empty() || searching_) {
    return;
  }
  if (thread_.joinable()) {
    thread_.join();  // it is done
  }
  try {
    thread_ = start_thread(
        "the thread that looks for silent ranks",
        [this, targets = std::move(targets), over = std::move(over),
         unreachable = std::move(unreachable)] { search(targets, over, unreachable); });
    searching_ = true;  // the thread takes the lock before it says that it is done
  } catch (const std::exception& failure) {
    note(failure.what());
  }
}

// Whatever fails here, the ranks may live and be well: the next search looks for them again.
void ReachabilityCheck::search(const std::vector<Target>& targets,
                               const std::function<bool()>& over,
                               const std::function<void(int)>& unreachable) {
  std::string failed;
  try {
    for (const Target& target : targets) {
      if (over() || somebody_listens(target.addresses)) {
        continue;
      }
      std::this_thread::sleep_for(coordinator_grace);
      unreachable(target.rank);
    }
  } catch (const std::exception& failure) {
    failed = failure.what();
  }
  const std::lock_guard lock(mutex_);
  searching_ = false;
  if (!failed.empty()) {
    note(failed);
  }
}

/// Once, since every search may find the same.
void ReachabilityCheck::note(std::string_view failure) {
  if (!std::exchange(noted_, true)) {
    log().warn("cannot look whether ranks that are silent can be reached: {}", failure);
  }
}

void ReachabilityCheck::stop() {
  if (thread_.joinable()) {
    thread_.join();
  }
}

}  // namespace sprat::comm
