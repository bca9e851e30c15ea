#include "collectives/history.hpp"

#include <algorithm>
#include <utility>

#include "comm/base/check.hpp"

namespace sprat::collectives {
namespace {

constexpr std::size_t least_calls = 64;
// Of the calls before the one asked about, on which ranks may disagree as well.
constexpr std::uint64_t most_shown_before = 4;

}  // namespace

History::History() : calls_(least_calls) {}

void History::add(const Signature& signature, std::uint64_t trail,
                  std::shared_ptr<const Problem> problem, std::uint64_t in_flight) {
  if (next_ - in_flight + most_shown_before >= calls_.size()) [[unlikely]] {
    grow();
  }
  Call& call = calls_[next_++ & (calls_.size() - 1)];
  call.signature = signature;
  call.trail = trail;
  if (problem || call.problem) {
    call.problem = std::move(problem);
  }
}

void History::grow() {
  std::vector<Call> longer(2 * calls_.size());
  const std::uint64_t kept = std::min<std::uint64_t>(next_, calls_.size());
  for (std::uint64_t sequence = next_ - kept; sequence < next_; ++sequence) {
    longer[sequence & (longer.size() - 1)] = std::move(calls_[sequence & (calls_.size() - 1)]);
  }
  calls_ = std::move(longer);
}

std::optional<std::string> History::words(std::uint64_t sequence) const {
  if (sequence >= next_ || next_ - sequence > calls_.size()) {
    return std::nullopt;
  }
  const auto words_of = [](const Call& call) {
    return call.problem ? describe(*call.problem) : describe(call.signature);
  };
  std::string words = words_of(at(sequence));
  std::uint64_t trail = at(sequence).trail;
  const std::uint64_t oldest = next_ - std::min<std::uint64_t>(next_, calls_.size());
  const std::uint64_t farthest = std::max(oldest, sequence - std::min(sequence, most_shown_before));
  for (std::uint64_t before = sequence; trail != 0 && before > farthest;) {
    const Call& earlier = at(--before);
    words += text(" after ", words_of(earlier));
    trail = earlier.trail;
  }
  if (trail != 0) {
    words += fmt::format(" after calls of hash {:016x}", trail);
  }
  return words;
}

}  // namespace sprat::collectives
