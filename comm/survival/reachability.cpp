#include "comm/survival/reachability.hpp"

#include <chrono>
#include <utility>

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
  searching_ = true;
  thread_ = std::thread([this, targets = std::move(targets), over = std::move(over),
                         unreachable = std::move(unreachable)] {
    for (const Target& target : targets) {
      if (over() || somebody_listens(target.addresses)) {
        continue;
      }
      std::this_thread::sleep_for(coordinator_grace);
      unreachable(target.rank);
    }
    const std::lock_guard done(mutex_);
    searching_ = false;
  });
}

void ReachabilityCheck::stop() {
  if (thread_.joinable()) {
    thread_.join();
  }
}

}  // namespace sprat::comm
