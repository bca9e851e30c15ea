// Rests double, so a host that is gone costs less and less.
#include "io/caches/peer_health.hpp"

#include <algorithm>

namespace sprat::io {
namespace {

/// One lost message is no reason to leave a host alone.
constexpr int failures_in_a_row = 3;
constexpr std::chrono::milliseconds first_rest{1000}, longest_rest{60'000};

}  // namespace

void PeerHealth::answered() noexcept {
  failures_ = 0;
  rest_ = std::chrono::milliseconds(0);
}

void PeerHealth::failed(Time now) noexcept {
  if (!may_be_asked(now)) {
    return;  // of those that were asked before it was left alone: they tell nothing new
  }
  if (++failures_ < failures_in_a_row) {
    return;
  }
  rest_ = std::clamp(2 * rest_, first_rest, longest_rest);
  rests_until_ = now + rest_;
  // Back from its rest it gets one chance, not three.
  failures_ = failures_in_a_row - 1;
}

}  // namespace sprat::io
