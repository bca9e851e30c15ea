#include "collectives/engine/stall_watch.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"

namespace sprat::collectives {
namespace {

using namespace std::chrono_literals;
using comm::Clock;

// The coordinator compares what everybody called once somebody has waited this long, and again so
// often.
constexpr auto stall_after = 100ms;
constexpr auto stall_again = 5s;
// Whom it waits for is looked at so often.
constexpr auto watch_again = 100ms;
// After the deadline, how long the coordinator may take to say who is late.
constexpr auto verdict_grace = 800ms;
// A wire's error is usually a peer's death, which the control thread explains a moment later.
constexpr auto wire_error_grace = 2s;
// A rank of another host that has sent nothing for so long is looked for, and again after four
// times as long: it is most likely only late.
constexpr auto search_after = 4s;
// What a rank sent before it left in good order may still be on its way.
constexpr auto departure_grace = 1s;
// A warning names so many ranks, and counts the rest.
constexpr std::size_t most_named = 8;

double seconds_in(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

const char* why_unmapped(int error) {
  switch (error) {
    case ENOMEM:
      return "; this process can map no more memory (see ulimit -v, vm.max_map_count)";
    case EMFILE:
    case ENFILE:
      return "; no descriptor is left here (see ulimit -n)";
    default:
      return "; it was freed there";
  }
}

std::string names(const WatchedCall& call, const std::vector<int>& ranks) {
  const std::size_t named = std::min(ranks.size(), most_named);
  std::string names;
  for (std::size_t i = 0; i < named; ++i) {
    names += text(i == 0 ? "" : ", ", call.name_of(ranks[i]));
  }
  return ranks.size() == named ? names : text(names, " and ", ranks.size() - named, " more");
}

// Whoever does not answer comes first: the others may be late because they wait for it.
Error timeout_of(const WatchedCall& call) {
  const std::vector<int> silent = call.silent();
  std::vector<int> ranks = call.late();
  std::erase_if(ranks, [&](int rank) { return std::ranges::count(silent, rank) > 0; });
  std::string who;
  if (!silent.empty()) {
    who = text("no answer from ", names(call, silent), ranks.empty() ? "" : "; ");
  }
  if (!ranks.empty()) {
    who += text("not called by ", names(call, ranks));
  } else if (silent.empty()) {
    ranks = call.awaited();
    who = ranks.empty() ? "every rank has called it, but it did not end"
                        : text("every rank has called it; still waiting for ", names(call, ranks));
  }
  ranks.insert(ranks.begin(), silent.begin(), silent.end());
  return Error(ErrorCode::timeout,
               text("no end after ", 1e-3 * static_cast<double>(call.times().timeout.count()),
                    " s: ", who, "; SPRAT_TIMEOUT or Options::timeout sets the deadline"),
               ranks.empty() ? -1 : ranks.front());
}

}  // namespace

[[gnu::hot]] void StallWatch::look(WatchedCall& call, Clock::time_point now) {
  const WireFailure* failure = call.wire_failure();
  if (failure != nullptr && now - failure->since > wire_error_grace) {
    throw Error(ErrorCode::unavailable,
                text("a message ", failure->sends ? "to " : "from ",
                     call.name_of(failure->world_rank), " could not be delivered: ",
                     std::strerror(failure->error), "; sprat doctor looks at the way there"),
                failure->world_rank);
  }
  const WatchedCall::Times times = call.times();
  if (now - times.posted < stall_after) {
    return;
  }
  watch_peers(call, now);
  look_for_the_gone(call, now);
  const bool due = now >= times.deadline;
  if (now - reported_ > stall_again || (due && !timed_out_)) {
    timed_out_ |= due;
    report(call, now);
  } else if (due && now - times.deadline > verdict_grace) {
    throw timeout_of(call);
  }
}

void StallWatch::look_for_the_gone(WatchedCall& call, Clock::time_point now) {
  if (stuck_since_ == Clock::time_point{}) {
    stuck_since_ = now;
    next_search_ = search_after;
  } else if (now - stuck_since_ > next_search_) {
    next_search_ *= 4;
    call.search();
  } else if (now - stuck_since_ > departure_grace) {
    for (const int rank : call.awaited()) {
      if (call.departed(rank)) {
        throw Error(ErrorCode::lost_peer,
                    text(call.name_of(rank), " has left the job in good order"), rank);
      }
    }
  }
}

void StallWatch::watch_peers(WatchedCall& call, Clock::time_point now) {
  if (now - watched_ < watch_again) {
    return;
  }
  watched_ = now;
  const std::vector<int> late = call.late();
  std::vector<int> ranks = late;
  for (const int rank : call.awaited()) {
    if (std::ranges::find(late, rank) == late.end()) {
      ranks.push_back(rank);
    }
  }
  call.show(ranks, late.size());

  const auto waited = now - call.times().since;
  if (stragglers_.warned()) {
    tell_who_came(call, now, stragglers_.came(late));
  } else if ((late.empty() || call.speaks_for_host()) && stragglers_.warn(waited, late)) {
    if (late.empty()) {
      log().warn("{} has waited {:.1f} s; every rank has called it, but {} not go on", call.words(),
                 seconds_in(waited),
                 ranks.empty() ? "it does"
                               : text(names(call, ranks), ranks.size() == 1 ? " does" : " do"));
    } else {
      log().warn("{} has waited {:.1f} s for {}", call.words(), seconds_in(waited),
                 names(call, late));
    }
  }
}

void StallWatch::tell_who_came(const WatchedCall& call, Clock::time_point now,
                               const std::vector<int>& ranks) const {
  for (const int rank : ranks) {
    log().warn("{}: {} came {:.1f} s late", call.words(), call.name_of(rank),
               seconds_in(now - call.times().since));
  }
}

void StallWatch::report(WatchedCall& call, Clock::time_point now) {
  reported_ = now;
  call.report();
}

// What cannot be mapped is usually the memory of a process that has just died: the control thread
// says so a moment later.
std::optional<Error> StallWatch::misses(const WatchedCall& call, const Unmapped& memory,
                                        Clock::time_point now) {
  if (unmapped_since_ == Clock::time_point{}) {
    unmapped_since_ = now;
    unmapped_error_ = memory.error;  // later ones may come of the peer's own failure
    return std::nullopt;
  }
  if (now - unmapped_since_ <= wire_error_grace) {
    return std::nullopt;
  }
  return Error(ErrorCode::unavailable,
               text("cannot read the memory of ", call.name_of(memory.world_rank), ": ",
                    std::strerror(unmapped_error_), why_unmapped(unmapped_error_)),
               memory.world_rank);
}

[[gnu::hot]] void StallWatch::end(const WatchedCall& call, Clock::time_point now) {
  if (stragglers_.warned()) [[unlikely]] {
    tell_who_came(call, now, stragglers_.came({}));
    stragglers_.forget();
  }
  reported_ = unmapped_since_ = {};
  timed_out_ = false;
}

}  // namespace sprat::collectives
