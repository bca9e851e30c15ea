// Whether a rank that is silent can still be reached: a cut between two hosts may spare the
// coordinator's.
#include "comm/base/check.hpp"
#include "comm/context/context.hpp"
#include "comm/survival/port_probe.hpp"

namespace sprat::comm {
namespace {

// If its process has died, the coordinator says so within this time, and says it better.
constexpr std::chrono::milliseconds coordinator_grace{500};

}  // namespace

void Context::look_for(const std::vector<int>& ranks) {
  const std::lock_guard lock(search_mutex_);
  if (!survivor_listener_ || ranks.empty() || searching_) {
    return;
  }
  if (search_thread_.joinable()) {
    search_thread_.join();  // it is done
  }
  searching_ = true;
  search_thread_ = std::thread([this, ranks] {
    for (const int rank : ranks) {
      if (failure() != nullptr ||
          somebody_listens(survivor_listener_->addresses_of(numbers_[rank]))) {
        continue;
      }
      std::this_thread::sleep_for(coordinator_grace);
      fail(Error(ErrorCode::lost_peer,
                 text(describe_peer(rank_), " cannot reach ", describe_peer(rank),
                      ": nothing has come from it, and its host takes no connection"),
                 rank));
    }
    const std::lock_guard done(search_mutex_);
    searching_ = false;
  });
}

}  // namespace sprat::comm
