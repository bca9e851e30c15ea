#include "collectives/engine/eager_calls.hpp"

#include <algorithm>
#include <cstring>

namespace sprat::collectives {

EagerCalls::EagerCalls(comm::Context& context, const Membership& membership, LocalPeers& peers,
                       const comm::FailureScope& scope)
    : context_(context),
      peers_(peers),
      scope_(scope),
      rank_(membership.rank),
      inputs_(membership.world_ranks.size()) {}

// A call that is not plain has more to agree on than its signature, which is all that find() sees.
[[gnu::hot]] void EagerCalls::remember(const Operation& operation, const Planned& planned) {
  Known& known = known_[place_of(operation.signature)];
  if (is_plain(operation.problem) && !is(known, operation.signature, operation.problem.output)) {
    known = {.signature = operation.signature,
             .eager = planned.eager,
             .arithmetic = arithmetic_of(operation.problem),
             .algorithm = planned.algorithm->name,
             .bytes = operation.problem.payload_bytes(),
             .extents = digests::extents_of(operation.problem)};
  }
}

[[gnu::hot]] bool EagerCalls::may_announce_soon(const Announcement& call) {
  const std::size_t bytes = call.eager.shown_bytes();
  comm::Clock::time_point now{};
  return rest_until([&] { return peers_.may_open(call.sequence, bytes); }, now);
}

[[gnu::hot]] void EagerCalls::announce(const Announcement& call, const std::byte* input) {
  Slot& slot = peers_.open(call.sequence);
  slot.marks = Slot::inlined;
  if (const std::size_t bytes = call.eager.input_bytes; call.eager.shows_input) {
    std::memcpy(peers_.mine().inlined_input(call.sequence, bytes), input, bytes);
  }
  peers_.announce(slot, call.sequence, call.signature, call.prior_calls_hash);
  // Calls like this one follow each other, and peers are seldom so late as to read the next slot.
  peers_.mine().of(call.sequence + 1).prefetch_to_write(call.eager.longest_input_bytes);
}

[[gnu::hot]] bool EagerCalls::have_announced(const Announcement& call) {
  if (!call.eager.runs_ahead) {
    return peers_.all_announced(call.sequence, call.signature, call.prior_calls_hash);
  }
  return std::ranges::all_of(call.eager.reads, [&](const EagerPlan::Peer& peer) {
    return peers_.has_announced(peer.rank, call.sequence, call.signature, call.prior_calls_hash);
  });
}

[[gnu::hot]] bool EagerCalls::wait(const Announcement& call, comm::Clock::time_point& now) {
  return rest_until([&] { return have_announced(call); }, now) && scope_.first() == nullptr;
}

// A look at the clock costs as much as a few looks at the peers.
template <class Done>
bool EagerCalls::rest_until(const Done& done, comm::Clock::time_point& now) const {
  comm::WaitPolicy& wait_policy = context_.wait_policy();
  comm::Clock::time_point since{};
  bool over = done();
  for (int round = 0; !over && wait_policy.rest(round, comm::Awaited::announcement); ++round) {
    if (round == comm::unclocked_rounds) {
      since = wait_policy.now();
    }
    over = done() || scope_.first() != nullptr;
  }
  if (since != comm::Clock::time_point{}) {
    now = wait_policy.now();
    context_.add_waited(since, now);
  }
  return over;
}

[[gnu::hot]] bool EagerCalls::finish(const EagerPlan& eager, const Arithmetic& arithmetic,
                                     std::uint64_t sequence, const std::byte* input,
                                     std::byte* output) {
  // Not as it was announced: peers are taking that line away, and reading it back would wait for
  // it.
  inputs_[rank_] = input;
  for (const EagerPlan::Peer& peer : eager.reads) {
    const Slot& slot = peers_.slot(peer.rank, sequence);
    if (!slot.is(Slot::inlined)) {
      return false;
    }
    inputs_[peer.rank] = peers_.control_block(peer.rank).inlined_input(sequence, peer.input_bytes);
  }
  collectives::finish(eager, arithmetic, inputs_, output, terms_);
  return true;
}

}  // namespace sprat::collectives
