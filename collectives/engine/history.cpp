#include "collectives/engine/history.hpp"

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

[[gnu::hot]] void History::add(const Signature& signature, std::uint64_t prior_calls_hash,
                               std::shared_ptr<const Problem> problem, std::uint64_t in_flight) {
  if (next_ - in_flight + most_shown_before >= calls_.size()) [[unlikely]] {
    grow();
  }
  PastCall& call = calls_[next_++ & (calls_.size() - 1)];
  call.signature = signature;
  call.prior_calls_hash = prior_calls_hash;
  if (problem || call.problem) {
    call.problem = std::move(problem);
  }
  if (next_ - first_ > calls_.size()) {
    ++first_;  // its place has just been taken
  }
}

void History::grow() {
  std::vector<PastCall> longer(2 * calls_.size());
  for (std::uint64_t sequence = first_; sequence < next_; ++sequence) {
    longer[sequence & (longer.size() - 1)] = std::move(calls_[sequence & (calls_.size() - 1)]);
  }
  calls_ = std::move(longer);
}

bool History::remembers(std::uint64_t sequence) const {
  return sequence < next_ && sequence - std::min(sequence, most_shown_before) >= first_;
}

std::string History::words(std::uint64_t sequence) const {
  require(remembers(sequence), "call ", sequence, " is forgotten, or to come");
  const auto words_of = [](const PastCall& call) {
    return call.problem ? describe(*call.problem) : describe(call.signature);
  };
  std::string words = words_of(at(sequence));
  std::uint64_t prior_calls_hash = at(sequence).prior_calls_hash;
  const std::uint64_t farthest = sequence - std::min(sequence, most_shown_before);
  for (std::uint64_t before = sequence; prior_calls_hash != 0 && before > farthest;) {
    const PastCall& earlier = at(--before);
    words += text(" after ", words_of(earlier));
    prior_calls_hash = earlier.prior_calls_hash;
  }
  if (prior_calls_hash != 0) {
    words += fmt::format(" after calls of hash {:016x}", prior_calls_hash);
  }
  return words;
}

}  // namespace sprat::collectives
