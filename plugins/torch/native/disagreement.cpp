#include "plugins/torch/native/disagreement.hpp"

#include <algorithm>
#include <chrono>

namespace sprat::pytorch {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

/// How long ranks that have not noticed the error yet are waited for, all together.
constexpr auto patience = 2000ms;
/// How many ranks are listed: the message is read by a person.
constexpr int most_ranks = 16;

std::string key(const Notes& notes, int rank) {
  return "sprat/disagreement/" + notes.group + "/" + std::to_string(rank);
}

}  // namespace

std::string compare_notes(const Notes& notes, const std::string& mine) {
  std::string out;
  const c10::intrusive_ptr<c10d::Store> kept = notes.store();
  if (!kept) {
    return out;
  }
  try {
    Store store(kept);
    store.set(key(notes, notes.rank), mine);
    const auto deadline = Clock::now() + patience;
    for (int rank = 0; rank < std::min(notes.size, most_ranks); ++rank) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      const auto theirs =
          rank == notes.rank ? mine : store.get(key(notes, rank), std::max(left, 1ms));
      out += "\nrank " + std::to_string(rank) +
             " of the group: " + theirs.value_or("(has not said what it called)");
    }
  } catch (const std::exception&) {
    return out;  // the store is gone, with the rank that served it: the message says less
  }
  return out;
}

}  // namespace sprat::pytorch
