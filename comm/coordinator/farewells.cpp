#include "comm/coordinator/farewells.hpp"

#include <algorithm>
#include <utility>

#include "comm/base/rank_ranges.hpp"

namespace sprat::comm {
namespace {

using std::chrono::microseconds;

/// Each lot goes to every rank, one call of the kernel each, so the time between two grows with the
/// job: up to 4,000 ranks one thread makes 250,000 of these a second. It stays well below the 50 ms
/// that a process's end is held back for its farewell.
constexpr microseconds lull_a_rank{4}, least_lull{1'000}, longest_lull{16'000};

}  // namespace

Farewells::Farewells(int ranks)
    : lull_(std::clamp(ranks * lull_a_rank, least_lull, longest_lull)) {}

std::vector<int> Farewells::due(Time now) {
  if (waiting_.empty() || (quiet_until_ && now < *quiet_until_)) {
    return {};
  }
  quiet_until_ = now + lull_;
  return rest();
}

std::vector<int> Farewells::rest() {
  std::ranges::sort(waiting_);
  return std::exchange(waiting_, {});
}

std::optional<Farewells::Time> Farewells::deadline() const {
  return waiting_.empty() ? std::nullopt : quiet_until_;
}

ControlMessage farewell_of(const std::vector<int>& ranks) {
  ControlMessage message;
  message.kind = ControlMessage::Kind::farewell;
  message.rank = ranks.front();
  if (ranks.size() > 1) {
    message.payload = encode_ranks(ranks);
  }
  return message;
}

std::vector<int> departing(const ControlMessage& farewell, int ranks) {
  if (!farewell.payload.empty()) {
    return decode_ranks(farewell.payload, ranks).value_or(std::vector<int>());
  }
  return farewell.rank >= 0 && farewell.rank < ranks ? std::vector<int>{farewell.rank}
                                                     : std::vector<int>();
}

}  // namespace sprat::comm
