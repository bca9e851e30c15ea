#include "collectives/engine/eager_calls.hpp"

#include <cstring>

namespace sprat::collectives {
namespace {

// Waiting longer than this is worth the clock's price.
constexpr int unclocked_rounds = 256;

const std::byte* payload_of(const Slot& slot, std::size_t bytes) {
  return bytes <= Slot::short_bytes ? slot.short_payload : slot.payload;
}

}  // namespace

EagerCalls::EagerCalls(comm::Context& context, const Membership& membership, LocalPeers& peers)
    : context_(context),
      peers_(peers),
      rank_(membership.rank),
      inputs_(membership.world_ranks.size()) {}

// A call that is not plain has more to agree on than its signature, which is all that find() sees.
void EagerCalls::remember(const Operation& operation, const Planned& planned) {
  Known& known = known_[place_of(operation.signature)];
  if (is_plain(operation.problem) && !(known.eager && known.signature == operation.signature)) {
    known = {.signature = operation.signature,
             .eager = planned.eager,
             .arithmetic = arithmetic_of(operation.problem),
             .algorithm = planned.algorithm,
             .bytes = operation.problem.payload_bytes()};
  }
}

void EagerCalls::announce(const EagerPlan& eager, const Signature& signature,
                          std::uint64_t sequence, const std::byte* input) {
  Slot& slot = peers_.open(sequence);
  slot.inlined = 1;
  if (eager.shows_input) {
    const bool is_short = eager.input_bytes <= Slot::short_bytes;
    std::memcpy(is_short ? slot.short_payload : slot.payload, input, eager.input_bytes);
  }
  peers_.announce(slot, sequence, signature);
}

// The clock is read only once a wait is long enough to be counted: a read costs as much as a few
// looks at the peers.
bool EagerCalls::wait(const Signature& signature, std::uint64_t sequence,
                      comm::Clock::time_point& now) const {
  comm::WaitPolicy& wait_policy = context_.wait_policy();
  comm::Clock::time_point since{};
  bool all = peers_.all_announced(sequence, signature);
  for (int round = 0; !all && wait_policy.rest(round, context_.oversubscribed()); ++round) {
    if (round == unclocked_rounds) {
      since = wait_policy.now();
    }
    all = peers_.all_announced(sequence, signature) || context_.failure() != nullptr;
  }
  if (since != comm::Clock::time_point{}) {
    now = wait_policy.now();
    context_.add_waited(now - since);
  }
  return all && context_.failure() == nullptr;
}

bool EagerCalls::finish(const EagerPlan& eager, const Arithmetic& arithmetic,
                        std::uint64_t sequence, const std::byte* input, std::byte* output) {
  // Not as it was announced: peers are taking that line away, and reading it back would wait for
  // it.
  inputs_[rank_] = input;
  for (const EagerPlan::Peer& peer : eager.reads) {
    const Slot& slot = peers_.slot(peer.rank, sequence);
    if (slot.inlined == 0) {
      return false;
    }
    inputs_[peer.rank] = payload_of(slot, peer.input_bytes);
  }
  collectives::finish(eager, arithmetic, inputs_, output, terms_);
  return true;
}

}  // namespace sprat::collectives
