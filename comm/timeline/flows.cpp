#include "comm/timeline/flows.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace sprat::comm::timeline {
namespace {

/// Numbers of a list in ascending order, each with how often it is there.
class Counted {
 public:
  explicit Counted(const std::vector<std::uint64_t>& ascending) : numbers_(ascending) {}

  std::optional<std::uint64_t> number() const {
    return at_ < numbers_.size() ? std::optional(numbers_[at_]) : std::nullopt;
  }
  /// How often this one is there, 0 if the next is another; behind it.
  std::size_t take(std::uint64_t number) {
    const std::size_t first = at_;
    while (at_ < numbers_.size() && numbers_[at_] == number) {
      ++at_;
    }
    return at_ - first;
  }

 private:
  const std::vector<std::uint64_t>& numbers_;
  std::size_t at_ = 0;
};

}  // namespace

// Sorted lists and no map: of long runs of many ranks there are millions.
Flows pair_flows(std::vector<std::uint64_t> sent, std::vector<std::uint64_t> received) {
  std::ranges::sort(sent);
  std::ranges::sort(received);
  Flows flows;
  Counted sends(sent), receives(received);
  while (sends.number() || receives.number()) {
    const std::uint64_t number =
        std::min(sends.number().value_or(UINT64_MAX), receives.number().value_or(UINT64_MAX));
    const std::size_t of_sends = sends.take(number), of_receives = receives.take(number);
    if (of_sends == 1 && of_receives == 1) {
      flows.paired.push_back(number);
    } else {
      ++flows.alone;
    }
  }
  return flows;
}

// Numbers of their own: those of events are hashes, and viewers read numbers as doubles.
std::uint64_t Flows::arrow_of(std::uint64_t number) const {
  const auto found = std::ranges::lower_bound(paired, number);
  return found == paired.end() || *found != number
             ? 0
             : static_cast<std::uint64_t>(found - paired.begin()) + 1;
}

}  // namespace sprat::comm::timeline
