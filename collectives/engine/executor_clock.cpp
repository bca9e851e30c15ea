// What an operation does about time: stalls are reported, deadlines end it, and errors say who is
// late.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "collectives/engine/executor.hpp"
#include "comm/base/check.hpp"

namespace sprat::collectives {
namespace {

using namespace std::chrono_literals;
using comm::Clock;

// The coordinator compares what everybody called once somebody has waited this long, and again so
// often.
constexpr auto stall_after = 100ms;
constexpr auto stall_again = 5s;
// After the deadline, how long the coordinator may take to say who is late.
constexpr auto verdict_grace = 800ms;
// A wire's error is usually a peer's death, which the control thread explains a moment later.
constexpr auto wire_error_grace = 2s;
// A rank of another host that has sent nothing for so long is looked for, and again after four
// times as long: each look waits in that rank's queue of connections.
constexpr auto look_after = 4s;
// What a rank sent before it left in good order may still be on its way.
constexpr auto departure_grace = 1s;

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

}  // namespace

// Nothing of calls behind the one under way: where that one waits lies the first disagreement, if
// there is any.
comm::Recall Executor::called(std::uint64_t sequence) const {
  using State = comm::Recall::State;
  if (sequence >= history_.next() || (!queue_.empty() && sequence > queue_.front()->sequence)) {
    return {State::not_yet};
  }
  if (!history_.remembers(sequence)) {
    return {State::forgotten};
  }
  const std::string words = history_.words(sequence);
  const auto* first = reinterpret_cast<const std::byte*>(words.data());
  return {State::called, comm::Blob(first, first + words.size())};
}

void Executor::watch_clock() {
  const auto now = context_->wait_policy().now();
  if (wire_failure_ && now - wire_failure_->since > wire_error_grace) {
    throw Error(ErrorCode::unavailable,
                text("a message ", wire_failure_->sends ? "to " : "from ",
                     context_->describe_peer(wire_failure_->world_rank),
                     " could not be delivered: ", std::strerror(wire_failure_->error),
                     "; sprat doctor looks at the way there"),
                wire_failure_->world_rank);
  }
  if (now - queue_.front()->posted < stall_after) {
    return;
  }
  watch_peers(now);
  if (stuck_since_ == Clock::time_point{}) {
    stuck_since_ = now;
    next_look_ = look_after;
  } else if (now - stuck_since_ > next_look_) {
    next_look_ *= 4;
    look_for_silent_peers();
  } else if (now - stuck_since_ > departure_grace) {
    for (const int world : awaited()) {
      if (context_->departed(world)) {
        throw Error(ErrorCode::lost_peer,
                    text(context_->describe_peer(world), " has left the job in good order"), world);
      }
    }
  }
  const bool due = now >= queue_.front()->deadline;
  if (now - reported_ > stall_again || (due && !timed_out_)) {
    timed_out_ |= due;
    report_stall(queue_.front()->sequence, now);
  } else if (due && now - queue_.front()->deadline > verdict_grace) {
    time_out();
  }
}

// A peer's control block shows another call than mine; the coordinator finds the two and fails
// every rank.
void Executor::ask_who_differs() {
  if (reported_ == Clock::time_point{}) {
    report_stall(active_->sequence, context_->wait_policy().now());
  }
}

// Of an operation in flight, which is remembered.
void Executor::report_stall(std::uint64_t sequence, Clock::time_point now) {
  reported_ = now;
  context_->report_stall(membership_.id, sequence, called(sequence).words);
}

void Executor::look_for_silent_peers() {
  std::vector<int> silent;
  for (std::size_t index = 0; phase_ == Phase::running && index < states_.size(); ++index) {
    const int peer = requests_[index].peer;
    if (states_[index] == StepState::posted && !context_->peer(peer).local &&
        std::ranges::count(silent, peer) == 0) {
      silent.push_back(peer);
    }
  }
  context_->look_for(silent);
}

// What cannot be mapped is usually the memory of a process that has just died: the control thread
// says so a moment later.
void Executor::wait_for_news(const Unmapped& peer) {
  const auto now = context_->wait_policy().now();
  if (unmapped_ == Clock::time_point{}) {
    unmapped_ = now;
    unmapped_error_ = peer.error;  // later ones may come of the peer's own failure
  } else if (now - unmapped_ > wire_error_grace) {
    context_->fail(Error(ErrorCode::unavailable,
                         text(describe_active(), ": cannot read the memory of ",
                              context_->describe_peer(peer.world_rank), ": ",
                              std::strerror(unmapped_error_), why_unmapped(unmapped_error_)),
                         peer.world_rank));
  }
}

std::vector<int> Executor::late() const {
  std::vector<int> ranks = context_->lateness(membership_.id, queue_.front()->sequence).late;
  std::erase_if(ranks, [&](int world) { return context_->peer(world).local; });  // seen below
  for (const int peer : local_peers_) {
    const int world = membership_.world_ranks[peer];
    const Slot& theirs = peers_[peer].control_block->of(queue_.front()->sequence);
    if (theirs.announced.load(std::memory_order_acquire) <= queue_.front()->sequence) {
      ranks.push_back(world);
    }
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

// Whoever does not answer comes first: the others may be late because they wait for it.
void Executor::time_out() {
  const std::vector<int> silent =
      context_->lateness(membership_.id, queue_.front()->sequence).silent;
  std::vector<int> ranks = late();
  std::erase_if(ranks, [&](int world) { return std::ranges::count(silent, world) > 0; });
  std::string who;
  if (!silent.empty()) {
    who = text("no answer from ", named(silent), ranks.empty() ? "" : "; ");
  }
  if (!ranks.empty()) {
    who += text("not called by ", named(ranks));
  } else if (silent.empty()) {
    ranks = awaited();
    who = ranks.empty() ? "every rank has called it, but it did not end"
                        : text("every rank has called it; still waiting for ", named(ranks));
  }
  ranks.insert(ranks.begin(), silent.begin(), silent.end());
  throw Error(ErrorCode::timeout,
              text("no end after ", 1e-3 * static_cast<double>(queue_.front()->timeout.count()),
                   " s: ", who, "; SPRAT_TIMEOUT or Options::timeout sets the deadline"),
              ranks.empty() ? -1 : ranks.front());
}

}  // namespace sprat::collectives
