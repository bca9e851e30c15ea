#include "cli/top/look.hpp"

#include <algorithm>
#include <set>
#include <tuple>

namespace sprat::cli {
namespace {

using collectives::CallState;
using collectives::FlightRecord;
using collectives::RecordedCommunicator;
using collectives::RecordedOperation;

// Ranks that call one after the other, as all do, are not late.
constexpr double patience_s = 100e-6;

/// A rank's part in a communicator, of which other ranks here have theirs.
struct CallerLook {
  std::size_t place;
  const FlightRecord* record;
  const RecordedCommunicator* communicator;
};

/// Nothing: it is in no collective.
const RecordedOperation* first_in_flight(const RecordedCommunicator& one) {
  const auto first = std::ranges::find_if(one.operations, [](const RecordedOperation& operation) {
    return operation.state == CallState::running || operation.state == CallState::queued;
  });
  return first == one.operations.end() ? nullptr : &*first;
}

// A record that was read before the call was made cannot say whether its rank is late for it.
bool keeps_waiting(const CallerLook& other, const RecordedOperation& call) {
  return other.communicator->posted <= call.sequence &&
         other.record->taken > call.posted + patience_s;
}

}  // namespace

std::vector<std::size_t> late_ranks(std::span<const RankLook> looks) {
  std::map<std::tuple<std::string, std::uint64_t>, std::vector<CallerLook>> communicators;
  for (std::size_t place = 0; place < looks.size(); ++place) {
    const FlightRecord& record = looks[place].record;
    for (const RecordedCommunicator& one : record.communicators) {
      communicators[{record.job, one.id}].push_back({place, &record, &one});
    }
  }
  std::set<std::size_t> late;
  for (const auto& [key, callers] : communicators) {
    for (const CallerLook& caller : callers) {
      const RecordedOperation* call = first_in_flight(*caller.communicator);
      for (const CallerLook& other : callers) {
        if (call != nullptr && keeps_waiting(other, *call)) {
          late.insert(other.place);
        }
      }
    }
  }
  return {late.begin(), late.end()};
}

}  // namespace sprat::cli
