// Calls so short that their inputs travel in the announcement: once all have announced, everything
// is there.
#include <algorithm>
#include <cstring>

#include "collectives/executor.hpp"

namespace sprat::collectives {
namespace {

// Waiting longer than this is worth the clock's price.
constexpr int unclocked_rounds = 256;

std::size_t place_of(const Signature& signature, std::size_t places) {
  return (signature.count * 5 + signature.detail * 3 +
          static_cast<std::size_t>(signature.collective)) %
         places;
}

}  // namespace

bool Executor::call_briefly(const Signature& signature, const std::byte* input, std::byte* output,
                            const std::function<std::shared_ptr<Operation>()>& make) {
  auto token = context_->try_token();
  const Known& known = known_[place_of(signature, known_.size())];
  if (!token || !context_->idle() || !known.brief || !(known.signature == signature) ||
      context_->failure() != nullptr) {
    return false;
  }
  const std::uint64_t sequence = history_.next(), trail = trail_;
  slot_ = &board_->of(sequence);
  slot_->signals.store(0, std::memory_order_relaxed);
  slot_->left.store(0, std::memory_order_relaxed);
  show_brief(*known.brief, input, *slot_);
  slot_->signature = signature;
  slot_->announced.store(sequence + 1, std::memory_order_release);
  context_->ring(local_world_ranks_);
  history_.add(signature, trail, nullptr, sequence);
  trail_ = may_end_unheard(signature) ? digest(signature, trail) : 0;
  if (linger(sequence, signature) && find_inputs(*known.brief, sequence, input)) {
    finish(*known.brief, known.arithmetic, inputs_, output, terms_);
    board_->completed.store(sequence + 1, std::memory_order_release);
    recorder_.over({sequence, signature, known.bytes, static_cast<int>(signature.detail),
                    context_->pace().recent()},
                   known.algorithm->name);
    return true;
  }
  const std::shared_ptr<Operation> operation = make();
  operation->sequence = sequence;
  operation->trail = trail;
  enqueue(operation);
  begin_active();
  inlined_ = true;
  phase_ = Phase::meeting;
  token.unlock();
  operation->wait();
  return true;
}

// What goes into the announcement of a brief call.
void Executor::show_brief(const Brief& brief, const std::byte* input, Slot& slot) {
  slot.inlined = 1;
  if (brief.shows_input) {
    std::memcpy(brief.input_bytes <= Slot::short_bytes ? slot.short_payload : slot.payload, input,
                brief.input_bytes);
  }
}

bool Executor::all_announced(std::uint64_t sequence, const Signature& signature) const {
  return std::all_of(local_peers_.begin(), local_peers_.end(), [&](int peer) {
    const Slot& theirs = peers_[peer].board->of(sequence);
    return theirs.announced.load(std::memory_order_acquire) == sequence + 1 &&
           theirs.signature == signature;
  });
}

// Waits for all to announce the same; false if it takes long, or forever.
bool Executor::linger(std::uint64_t sequence, const Signature& signature) const {
  comm::Pace& pace = context_->pace();
  comm::Clock::time_point since{};
  bool all = all_announced(sequence, signature);
  for (int round = 0; !all && pace.rest(round, context_->crowded()); ++round) {
    if (round == unclocked_rounds) {
      since = pace.now();
    }
    all = all_announced(sequence, signature) || context_->failure() != nullptr;
  }
  if (since != comm::Clock::time_point{}) {
    context_->add_waited(pace.now() - since);
  }
  return all && context_->failure() == nullptr;
}

/// Where every input lies that it reads; false if a peer's was too long to be announced.
bool Executor::find_inputs(const Brief& brief, std::uint64_t sequence, const std::byte* input) {
  const auto shown = [&](const Slot& slot, std::size_t bytes) {
    return bytes <= Slot::short_bytes ? slot.short_payload : slot.payload;
  };
  inputs_.resize(peers_.size());
  inputs_[membership_.rank] = brief.shows_input ? shown(*slot_, brief.input_bytes) : input;
  for (const Brief::Peer& peer : brief.reads) {
    const Slot& slot = peers_[peer.rank].board->of(sequence);
    if (slot.inlined == 0) {
      return false;
    }
    inputs_[peer.rank] = shown(slot, peer.input_bytes);
  }
  return true;
}

bool Executor::meet() {
  for (const int peer : local_peers_) {
    if (!announced(peer)) {
      return false;
    }
  }
  if (!find_inputs(*brief_, active_->sequence, active_->input)) {
    phase_ = Phase::gathering;  // by the plan's steps, then
    return true;
  }
  finish(*brief_, arithmetic_of(active_->problem), inputs_, active_->output, terms_);
  finish_active();
  return true;
}

// So that the same call, made again, may be brief.
void Executor::know(const Operation& operation) {
  Known& known = known_[place_of(operation.signature, known_.size())];
  if (is_plain(operation.problem) && !(known.brief && known.signature == operation.signature)) {
    known = {.signature = operation.signature,
             .brief = brief_,
             .arithmetic = arithmetic_of(operation.problem),
             .algorithm = algorithm_,
             .bytes = operation.problem.payload_bytes()};
  }
}

}  // namespace sprat::collectives
